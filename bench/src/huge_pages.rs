//! Huge pages of the kernel's pool, lent to a yardstick that wants its buffers there.

use std::fs;

const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Given back when dropped.
#[derive(Debug)]
pub(crate) struct HugePages {
    before: u64,
}

impl HugePages {
    /// So many more of 2 MiB; `None` where the kernel does not find them.
    pub(crate) fn lend(count: u64) -> Option<Self> {
        let read = || fs::read_to_string(POOL).ok()?.trim().parse::<u64>().ok();
        let lent = Self { before: read()? };
        fs::write(POOL, (lent.before + count).to_string()).ok()?;
        (read()? >= lent.before + count).then_some(lent)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // What can not be given back stays in the pool, of which the machine's owner can tell.
        let _ = fs::write(POOL, self.before.to_string());
    }
}
