// SPDX-License-Identifier: Apache-2.0
//! How the C library finds the address of a host name.

use std::ffi::{CStr, c_char, c_int};
use std::io;

unsafe extern "C" {
    /// `<nss.h>`: from then on the database is asked by this line in place of that of nsswitch.conf(5).
    fn __nss_configure_lookup(database: *const c_char, line: *const c_char) -> c_int;
}

const DATABASE: &CStr = c"hosts";
const SOURCES: &CStr = c"files dns";

/// Has the names of hosts looked up in `/etc/hosts` and then by DNS (`/etc/resolv.conf`), whatever nsswitch.conf(5) says: these two are part of the C library, all
/// others are files that it would load, and a program that is linked statically may load only those of the very C library that it was built with. To be called
/// before the first name is looked up.
///
/// # Errors
/// There is no memory.
pub fn look_up_hosts_by_files_and_dns() -> io::Result<()> {
    // SAFETY: both are strings that end with a NUL and live as long as the program.
    let status = unsafe { __nss_configure_lookup(DATABASE.as_ptr(), SOURCES.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs as _;

    use super::*;

    #[test]
    fn names_of_etc_hosts_are_found() {
        look_up_hosts_by_files_and_dns().unwrap();
        let found = ("localhost", 6443).to_socket_addrs().unwrap();
        assert!(found.into_iter().any(|address| address.ip().is_loopback()));
    }
}
