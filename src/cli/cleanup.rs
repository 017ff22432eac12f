// SPDX-License-Identifier: Apache-2.0
//! `vipherald cleanup`: takes away what an instance has left that no longer runs. Each step is printed once it is made.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::{Failure, block_on, print};
use crate::reconcile;

#[derive(Args, Debug)]
pub(super) struct Cleanup {
    /// Its name, as the key instance of its configuration had it
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    instance: String,
    /// Only print what would be done
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn cleanup(Cleanup { instance, dry_run }: Cleanup) -> Result<(), Failure> {
    let failed = |error| Failure::verb("cleanup", error);
    let mut told = 0_u32;
    let mut printed = Ok(());
    let tell = |line: &str| {
        told += 1;
        if printed.is_ok() {
            printed = print(&format!("{line}\n"));
        }
    };
    block_on("cleanup", reconcile::cleanup(&instance, dry_run, tell))?.map_err(failed)?;
    printed?;
    if told == 0 { print("nothing to do\n") } else { Ok(()) }
}
