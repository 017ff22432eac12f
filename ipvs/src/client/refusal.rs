// SPDX-License-Identifier: Apache-2.0
//! What the kernel's error numbers mean. The same number says different things of different commands.

use std::io;

use crate::command::{Command, Refusal};

/// Why a command was refused.
pub(super) fn of_command(command: &Command, error: io::Error) -> Refusal {
    match (error.raw_os_error(), command) {
        (Some(libc::EEXIST), _) => Refusal::AlreadyExists,
        (Some(libc::ESRCH), Command::StopDaemon(_)) => Refusal::NotRunning,
        (Some(libc::ESRCH), _) => Refusal::NoSuchService,
        (Some(libc::ENOENT), Command::AddService(service) | Command::EditService(service)) => {
            Refusal::MissingModule { scheduler: service.scheduler.clone(), engine: service.persistence_engine.clone() }
        }
        (Some(libc::ENOENT), Command::EditServer(..) | Command::DeleteServer(..)) => Refusal::NoSuchServer,
        (Some(libc::ERANGE), _) => Refusal::OutOfRange,
        (Some(libc::EINVAL), _) => Refusal::Invalid,
        _ => of_query(error),
    }
}

/// Why a query was refused.
pub(super) fn of_query(error: io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Refusal::NoSuchService,
        Some(libc::EPERM | libc::EACCES) => Refusal::NotPermitted,
        _ => Refusal::Other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Protocol, ServiceAddress};

    /// What the kernel really answers is held by `ipvs/tests/uml_ipvs`.
    #[test]
    fn what_a_test_cannot_bring_about_has_words_too() {
        let service = ServiceAddress::transport(Protocol::TCP, ([192, 0, 2, 1], 80).into());
        let refused = |number| of_command(&Command::DeleteService(service), io::Error::from_raw_os_error(number));
        assert!(matches!(refused(libc::EPERM), Refusal::NotPermitted));
        assert!(matches!(of_query(io::Error::from_raw_os_error(libc::EPERM)), Refusal::NotPermitted));
        assert!(matches!(refused(libc::ENOMEM), Refusal::Other(error) if error.raw_os_error() == Some(libc::ENOMEM)));
    }
}
