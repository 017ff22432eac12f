// SPDX-License-Identifier: Apache-2.0
//! Runs the command `nft`: arguments and a script in, its output out. No shell; a process that hangs is killed.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const NFT: &str = "nft";
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why `nft` did not do what it was told to.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// There is no such command.
    #[error("there is no command {0} in PATH (Debian package nftables)")]
    Missing(String),
    /// It could not be run.
    #[error("cannot run {program}")]
    Run {
        /// The command.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It took too long, and was killed.
    #[error("nft did not {action} within {limit:?}")]
    Timeout {
        /// What it was to do.
        action: String,
        /// How long it had.
        limit: Duration,
    },
    /// It wrote something unexpected.
    #[error("cannot understand what nft lists of sets")]
    Listing(#[source] serde_json::Error),
    /// It refused.
    #[error("nft refused to {action}: {message}")]
    Refused {
        /// What it was to do.
        action: String,
        /// What it wrote to standard error.
        message: String,
    },
}

/// What a process did that succeeded.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its id, which is its netlink port too.
    pub(crate) process: Option<u32>,
    /// What it wrote to standard output.
    pub(crate) stdout: Vec<u8>,
}

/// Runs `nft` with these arguments and this standard input. `action` says in errors what it was to do.
pub(crate) async fn nft(arguments: &[&str], input: &str, action: &str) -> Result<Done, NftError> {
    run(NFT, arguments, input, action, TIMEOUT).await
}

/// As [`nft`], for what takes longer.
pub(super) async fn nft_within(limit: Duration, arguments: &[&str], action: &str) -> Result<Done, NftError> {
    run(NFT, arguments, "", action, limit).await
}

/// A set, as `nft` names it.
#[derive(Debug, Deserialize)]
pub(crate) struct NamedSet {
    /// The table that it is in.
    pub(crate) table: String,
    /// Its name there.
    pub(crate) name: String,
    /// What its maker says of it.
    pub(crate) comment: Option<String>,
}

/// The sets of the family `inet`, without their elements. It tells what tables there are, too, as far as they have sets: to list just the tables, nft 1.0.6 reads all
/// rules and elements of all families, which takes gigabytes beside thousands of virtual services.
pub(crate) async fn sets() -> Result<Vec<NamedSet>, NftError> {
    #[derive(Deserialize)]
    struct Listing {
        nftables: Vec<Object>,
    }
    #[derive(Deserialize)]
    struct Object {
        set: Option<NamedSet>,
    }

    let done = nft(&["-j", "-t", "list", "sets", "inet"], "", "list sets").await?;
    let listing: Listing = serde_json::from_slice(&done.stdout).map_err(NftError::Listing)?;
    Ok(listing.nftables.into_iter().filter_map(|object| object.set).collect())
}

async fn run(program: &str, arguments: &[&str], input: &str, action: &str, limit: Duration) -> Result<Done, NftError> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => NftError::Missing(program.to_owned()),
        _ => NftError::Run { program: program.to_owned(), source },
    })?;
    let process = child.id();
    let stdin = child.stdin.take();
    let write = async move {
        if let Some(mut stdin) = stdin {
            // A process that ends without reading all of it tells why by its status.
            let _closed_early = stdin.write_all(input.as_bytes()).await;
        }
    };
    let (output, ()) = tokio::time::timeout(limit, async { tokio::join!(child.wait_with_output(), write) })
        .await
        .map_err(|_elapsed| NftError::Timeout { action: action.to_owned(), limit })?;
    let output = output.map_err(|source| NftError::Run { program: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(Done { process, stdout: output.stdout });
    }
    let message = match String::from_utf8_lossy(&output.stderr).trim() {
        "" => output.status.to_string(),
        words => words.to_owned(),
    };
    Err(NftError::Refused { action: action.to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn says_that_it_is_missing() {
        let error = run("nft-that-is-not-there", &[], "", "list tables", TIMEOUT).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no command nft-that-is-not-there in PATH (Debian package nftables)");
    }

    #[tokio::test]
    async fn says_what_was_refused_and_why() {
        let error = run("sh", &["-c", "echo Operation not permitted >&2; exit 1"], "", "change table inet x", TIMEOUT).await.unwrap_err();
        assert_eq!(error.to_string(), "nft refused to change table inet x: Operation not permitted");
        let error = run("false", &[], "", "change table inet x", TIMEOUT).await.unwrap_err();
        assert_eq!(error.to_string(), "nft refused to change table inet x: exit status: 1");
    }

    #[tokio::test]
    async fn a_process_that_hangs_is_given_up() {
        let error = run("sleep", &["1000"], "", "list tables", Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.to_string(), "nft did not list tables within 20ms");
    }

    #[tokio::test]
    async fn input_that_is_not_read_is_no_error() {
        let input = "x".repeat(1 << 20);
        assert!(run("true", &[], &input, "do nothing", TIMEOUT).await.unwrap().stdout.is_empty());
    }
}
