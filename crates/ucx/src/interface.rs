//! Names of network interfaces, as UCX wants them told.

#![expect(unsafe_code, reason = "neither std nor rustix lists the addresses of interfaces")]

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;

/// The interfaces that have one of `addresses`, each once. The whole of 127.0.0.0/8 is the loopback's.
pub(super) fn names(addresses: &[IpAddr]) -> Vec<String> {
    let mut first = null_mut();
    // SAFETY: the place is filled with a list on success.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: an entry of the list, which is freed below.
        let entry = unsafe { &*at };
        // SAFETY: an address of the entry, or null.
        let has_one = unsafe { ip(entry.ifa_addr) }.is_some_and(|own| {
            addresses
                .iter()
                .any(|address| *address == own || (own.is_loopback() && address.is_loopback()))
        });
        // SAFETY: each entry has a name that ends with a zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        if has_one && !names.contains(&name) {
            names.push(name);
        }
        at = entry.ifa_next;
    }
    // SAFETY: made above, and used no more.
    unsafe { libc::freeifaddrs(first) };
    names
}

/// # Safety
/// Null, or a socket address of the family that it names.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: as the caller says; both families start with the same field.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let bits = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from(bits.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let bytes = (*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr;
                Some(Ipv6Addr::from(bytes).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_its_addresses() {
        let loopback = names(&["127.0.0.1".parse().unwrap()]);
        assert_eq!(loopback, ["lo"]);
        assert_eq!(names(&["127.0.0.9".parse().unwrap()]), loopback);
        assert!(names(&["192.0.2.77".parse().unwrap()]).is_empty());
    }
}
