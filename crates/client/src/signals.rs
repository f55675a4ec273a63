//! Whether a signal is pending for a thread that waits in the kernel for an answer of ours.
//!
//! Source: proc_pid_status(5), signal(7).

/// What is known of a thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// It waits.
    There,
    /// A signal is pending that it neither blocks nor ignores.
    Interrupted,
    /// It is gone, or as good as that: killed.
    Gone,
}

/// Looks at a thread. Of thread 0, one that this process can not see, nothing is known.
pub(crate) fn look_at(thread: u32) -> Waiter {
    if thread == 0 {
        return Waiter::There;
    }
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => state_of(&status),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Waiter::Gone,
        Err(_) => Waiter::There,
    }
}

fn state_of(status: &str) -> Waiter {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let mask = |name| field(name).and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let signals = |name| mask(name).unwrap_or(0);
    let pending = signals("SigPnd:") | signals("ShdPnd:");
    let ended = field("State:").is_some_and(|state| state.trim().starts_with(['Z', 'X']));
    match pending & !(signals("SigBlk:") | signals("SigIgn:")) {
        _ if ended || pending & KILL != 0 => Waiter::Gone,
        0 => Waiter::There,
        _ => Waiter::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_counts_that_is_neither_blocked_nor_ignored() {
        let check = |pending: &str, shared: &str, blocked: &str, ignored: &str, expected| {
            let status = format!(
                "Name:\tx\nState:\tD (disk sleep)\nSigQ:\t0/1\nSigPnd:\t{pending}\n\
                 ShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\n"
            );
            assert_eq!(state_of(&status), expected, "{status}");
        };
        use Waiter::*;
        check("0000000000000000", "0000000000000000", "0", "0", There);
        check("0000000000000000", "0000000000000100", "0", "0", Gone); // SIGKILL
        check("0000000000000002", "0000000000000000", "0", "0", Interrupted);
        check("0000000000000002", "0000000000000000", "2", "0", There);
        check("0000000000000000", "0000000000010000", "0", "10000", There);
        assert_eq!(state_of("State:\tZ (zombie)\n"), Gone);
        assert_eq!(state_of("no status at all"), There);
    }

    #[test]
    fn this_thread_is_there_and_nobody_is_gone() {
        let me = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert_eq!(look_at(me), Waiter::There);
        assert_eq!(look_at(u32::MAX), Waiter::Gone);
        assert_eq!(look_at(0), Waiter::There);
    }
}
