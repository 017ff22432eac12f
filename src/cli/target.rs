// SPDX-License-Identifier: Apache-2.0
//! `vipherald target`: what an init container runs so that its pod can stand behind a VIP with forwarding `dr`, `tun` or `gue`. Prints what it changes.

use std::net::IpAddr;

use clap::{Args, ValueEnum};

use super::{Failure, block_on, print};
use crate::target::{self, Target, TargetError, Tunnel};

#[derive(Args, Debug)]
pub(super) struct TargetOptions {
    /// The VIPs
    #[arg(long, value_name = "ADDRESS", required = true, num_args = 1.., value_delimiter = ',')]
    vip: Vec<IpAddr>,
    /// The tunnel by which packets come: ipip for forwarding tun, gue for gue; none for dr
    #[arg(long, value_name = "TYPE")]
    tunnel: Option<TunnelType>,
    /// The UDP port to which they come with --tunnel gue, dataplane.tunnel.port of the router nodes
    #[arg(long, default_value_t = 6080, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Undo it; settings of the kernel stay
    #[arg(long)]
    remove: bool,
    /// Only print what would be changed
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TunnelType {
    /// IP in IP
    Ipip,
    /// Generic UDP Encapsulation
    Gue,
}

pub(super) fn target(options: TargetOptions) -> Result<(), Failure> {
    let tunnel = options.tunnel.map(|tunnel| match tunnel {
        TunnelType::Ipip => Tunnel::Ipip,
        TunnelType::Gue => Tunnel::Gue(options.port),
    });
    let wanted = Target { vips: options.vip, tunnel };
    let done = async {
        let changes = target::changes(&wanted, options.remove).await?;
        for change in &changes {
            if !options.dry_run {
                target::make(change).await?;
            }
        }
        Ok::<_, TargetError>(changes)
    };
    let changes = block_on("target", done)?.map_err(|error| Failure::verb("target", error))?;
    let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
    print(if lines.is_empty() { "nothing to do\n" } else { &lines })
}
