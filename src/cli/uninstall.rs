// SPDX-License-Identifier: Apache-2.0
//! `vipherald uninstall`: takes an instance out of a cluster. Each step is printed once it is made.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Failure, block_on, print};
use crate::config::instance_name;
use crate::source::kube::{Access, Workload, uninstall as take_out};

#[derive(Args, Debug)]
pub(super) struct Uninstall {
    /// Its name, as the key instance of its configuration has it
    #[arg(long, value_name = "NAME", value_parser = instance_name)]
    instance: String,
    /// Whose pods its daemons are: DaemonSet/NAMESPACE/NAME or StatefulSet/NAMESPACE/NAME
    #[arg(long, value_name = "WORKLOAD")]
    workload: Workload,
    /// How long its pods may take to leave their nodes
    #[arg(long, value_name = "TIME", default_value = "4m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// The kubeconfig file with the way to the API server [default: that of KUBECONFIG, else that of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(super) fn uninstall(options: Uninstall) -> Result<(), Failure> {
    let verb = "uninstall";
    let access = Access::find(options.kubeconfig).map_err(|error| Failure::Usage { verb, message: error.to_string() })?;
    let mut printed = Ok(());
    let tell = |line: &str| {
        if printed.is_ok() {
            printed = print(&format!("{line}\n"));
        }
    };
    block_on(verb, async {
        let client = access.client().await.map_err(|error| Failure::verb(verb, error))?;
        let ended = take_out(&client, &options.instance, &options.workload, options.timeout, tell).await;
        ended.map_err(|error| Failure::verb(verb, error))
    })??;
    printed
}
