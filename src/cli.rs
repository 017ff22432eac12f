// SPDX-License-Identifier: Apache-2.0
//! The command line: verbs, exit codes, and every line that is printed outside the log.
//!
//! Exit codes: 0 all is well, 1 a finding, 2 wrong usage, 3 no daemon answers. Errors are one line each on standard error, `vipherald: WHAT: CAUSE`.

mod cleanup;
mod crds;
mod doctor;
mod peer;
mod show;
mod table;
mod target;
mod uninstall;

use std::error::Error;
use std::future::Future;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use bgp::Prefix;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{self, ClientError};
use crate::config::{self, Config, ConfigErrors, DataplaneType};
use crate::reconcile::{self, Objects, RunOptions};
use crate::source::kube::Access;
use crate::telemetry::{Logging, chain};

/// Puts VIPs on this node, keeps them served, and announces them by BGP while they are.
#[derive(Debug, Parser)]
#[command(name = "vipherald", version, max_term_width = 120, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 all is well, 1 a finding, 2 wrong usage, 3 no daemon answers.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon; SIGTERM drains the node, SIGHUP reads the configuration again
    Run(Intent),
    /// Print what a daemon that starts now would do, and change nothing
    Plan(Intent),
    /// Show what the daemon on this node says
    Show(Show),
    /// Say what stands in the way of serving VIPs on this node; needs no daemon and changes nothing
    Doctor(doctor::Doctor),
    /// Give orders about a BGP neighbour
    #[command(subcommand)]
    Peer(peer::PeerVerb),
    /// Make this network namespace, a pod's, one that takes packets to VIPs and answers clients itself (forwarding dr, tun, gue)
    Target(target::TargetOptions),
    /// Take away what an instance has left in the kernel that no longer runs, as after a change of its name
    Cleanup(cleanup::Cleanup),
    /// Take an instance out of a cluster: its workload, once the nodes are drained, and what it has written there
    Uninstall(uninstall::Uninstall),
    /// Print the CustomResourceDefinitions as YAML, or install them
    Crds(crds::Crds),
    /// Work with the configuration file
    #[command(subcommand)]
    Config(ConfigVerb),
}

#[derive(Args, Debug)]
struct Intent {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The directory with the Kubernetes objects as YAML files, in place of an API server; it is followed
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// The kubeconfig file with the way to the API server [default: that of KUBECONFIG, else that of the pod]
    #[arg(long, value_name = "FILE", conflicts_with = "manifests")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Show {
    /// What to show
    #[command(subcommand)]
    what: Shown,
    /// The form of the output [default: a table]
    #[arg(short, long, global = true, value_name = "FORM")]
    output: Option<Output>,
    #[command(flatten)]
    daemon: show::Daemon,
}

#[derive(Debug, Subcommand)]
enum Shown {
    #[command(flatten)]
    Status(Noun),
    /// The table of IPVS as `ipvsadm -Ln` prints it, and whose each line is
    Ipvs,
}

/// A part of the status.
#[derive(Clone, Debug, Eq, PartialEq, Subcommand)]
enum Noun {
    /// Every VIP: where it stands and why
    Vips,
    /// The BGP neighbours
    Peers {
        /// Only this one
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: Option<String>,
    },
    /// All about one BGP neighbour
    Peer {
        /// Its name, as `show peers` has it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
    /// What each peer was told
    Routes {
        #[command(subcommand)]
        of: Option<RoutesNoun>,
    },
    /// The virtual routers: which node has their addresses, and who else is on the link
    Vrrp,
    /// Objects and files that take no part, and why
    Rejections,
}

#[derive(Clone, Debug, Eq, PartialEq, Subcommand)]
enum RoutesNoun {
    /// What one peer was told, with all attributes as sent; and what it was not told, and why
    Advertised(PeerPrefix),
    /// What one peer has told, as far as that is kept: see bgp.peers[].keepReceived
    Received(PeerPrefix),
}

#[derive(Args, Clone, Debug, Eq, PartialEq)]
struct PeerPrefix {
    /// The name of the peer
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// Only the routes to this address or prefix
    #[arg(value_parser = admin::destination)]
    prefix: Option<Prefix>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    /// JSON, camelCase, times as of RFC 3339
    Json,
    /// The same as YAML
    Yaml,
    /// A table with all columns
    Wide,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Say whether a configuration file is good, and if not, all that is wrong with it
    Check {
        /// The configuration file
        file: PathBuf,
    },
}

/// Why a command did not do what it was to do.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// One line for each mistake.
    #[error("config")]
    Config(#[source] ConfigErrors),
    #[error("{verb}")]
    Verb {
        verb: &'static str,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("{verb}")]
    Daemon {
        verb: &'static str,
        #[source]
        source: ClientError,
    },
    /// The arguments do not go with the configuration or the environment.
    #[error("{verb}: {message}")]
    Usage { verb: &'static str, message: String },
    /// The configuration lacks what these arguments need.
    #[error("config: {}: {lack}", file.display())]
    Unfit { file: PathBuf, lack: String },
    /// Said in the output.
    #[error("doctor: {0}")]
    Found(String),
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

impl Failure {
    fn verb(verb: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Verb { verb, source: source.into() }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Unfit { .. }
            | Self::Verb { .. }
            | Self::Found(_)
            | Self::Output(_)
            | Self::Daemon { source: ClientError::Refused(_), .. } => 1,
            Self::Usage { .. } => 2,
            Self::Daemon { .. } => 3,
        }
    }

    /// One line each, without `vipherald: `.
    fn lines(&self) -> Vec<String> {
        match self {
            Self::Config(errors @ ConfigErrors::Invalid { .. }) => {
                errors.to_string().lines().map(|line| format!("{self}: {line}")).collect()
            }
            other => vec![chain(other).replace('\n', " ")],
        }
    }
}

/// Does what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // Who has closed the pipe has read enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure.lines());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.verb {
        Verb::Run(intent) => daemon(intent),
        Verb::Plan(intent) => {
            let (config, origin) = load_intent("plan", &intent)?;
            let text = block_on("plan", reconcile::dry_run(config, origin))?.map_err(|error| Failure::verb("plan", error))?;
            print(&text)
        }
        Verb::Show(show) => show::show(show),
        Verb::Doctor(doctor) => doctor::doctor(doctor),
        Verb::Peer(verb) => peer::peer(verb),
        Verb::Cleanup(options) => cleanup::cleanup(options),
        Verb::Uninstall(options) => uninstall::uninstall(options),
        Verb::Crds(options) => crds::crds(options),
        Verb::Target(options) => target::target(options),
        Verb::Config(ConfigVerb::Check { file }) => {
            load(&file)?;
            print(&format!("{}: good\n", file.display()))
        }
    }
}

/// SIGHUP is received before the file is read: who writes the file and sends it while the daemon starts does not end it.
fn daemon(intent: Intent) -> Result<(), Failure> {
    let run = async move {
        let hangup = signal(SignalKind::hangup()).map_err(|error| Failure::verb("run", error))?;
        let (config, origin) = load_intent("run", &intent)?;
        let logging = Logging::init(&config.log).map_err(|error| Failure::verb("run", error))?;
        let environment = config::process_environment();
        let options = RunOptions { config_file: intent.config, hangup, config, environment, origin, logging };
        reconcile::run(options).await.map_err(|error| Failure::verb("run", error))
    };
    block_on("run", run)?
}

/// The configuration, and where objects come from: in speaker-only use without a directory from nowhere.
fn load_intent(verb: &'static str, intent: &Intent) -> Result<(Config, Objects), Failure> {
    let config = load(&intent.config)?;
    let objects = match &intent.manifests {
        Some(dir) => Objects::Directory(dir.clone()),
        None if config.dataplane.kind == DataplaneType::None && intent.kubeconfig.is_none() => Objects::Nowhere,
        None => {
            Objects::Cluster(Access::find(intent.kubeconfig.clone()).map_err(|error| Failure::Usage { verb, message: error.to_string() })?)
        }
    };
    match config.unfit_for(objects.origin()) {
        Some(lack) => Err(Failure::Unfit { file: intent.config.clone(), lack }),
        None => Ok((config, objects)),
    }
}

fn load(file: &std::path::Path) -> Result<Config, Failure> {
    config::load(file, &config::process_environment()).map_err(Failure::Config)
}

fn block_on<F: Future>(verb: &'static str, future: F) -> Result<F::Output, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::verb(verb, error))?;
    let output = runtime.block_on(future);
    // A thread that a file system keeps waiting must not keep the process.
    runtime.shutdown_background();
    Ok(output)
}

fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(Failure::Output)
}

/// To standard error; if nobody reads that either, nothing is left to be done.
fn complain(lines: &[String]) {
    let text: String = lines.iter().map(|line| format!("vipherald: {line}\n")).collect();
    io::stderr().lock().write_all(text.as_bytes()).ok();
}
