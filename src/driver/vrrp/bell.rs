// SPDX-License-Identifier: Apache-2.0
//! Wakes a thread that sleeps in `ppoll`.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The side that rings.
#[derive(Clone, Debug)]
pub(super) struct Bell(Arc<UnixStream>);

/// The side that hears it.
#[derive(Debug)]
pub(super) struct Ear(UnixStream);

pub(super) fn bell() -> io::Result<(Bell, Ear)> {
    let (rings, hears) = UnixStream::pair()?;
    rings.set_nonblocking(true)?;
    hears.set_nonblocking(true)?;
    Ok((Bell(Arc::new(rings)), Ear(hears)))
}

impl Bell {
    /// Never waits. Several rings may be heard as one.
    pub(super) fn ring(&self) {
        // Where there is no room, the other side has yet to hear earlier ones; where it is gone, nobody is to be woken.
        let _heard_already = (&*self.0).write(&[0]);
    }
}

impl Ear {
    /// Forgets the rings so far.
    pub(super) fn clear(&self) {
        let mut rings = [0; 64];
        while matches!((&self.0).read(&mut rings), Ok(count) if count == rings.len()) {}
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
