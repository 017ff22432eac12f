# SPDX-License-Identifier: Apache-2.0
"""The command line of labs/run."""

import argparse
import json
import os
import platform
import signal
import sys
from pathlib import Path

from . import lab as labs
from . import topology
from .cluster import ClusterStory
from .failure import Failure
from .images import IMAGES
from .lab import Lab
from .node import LabError
from .pair import Pair
from .plugin import Plugin
from .reflector import Reflector
from .scenario import Report, Scenario, read

LABS = Path(__file__).resolve().parents[1]
STORIES = {"virtualRouters": Pair, "failure": Failure, "plugin": Plugin, "reflector": Reflector, "cluster": ClusterStory}  # by the key of scenario.yaml that asks for it
ROUTERS = ("bird", "frr")  # values of ROUTER that every topology must be valid with

USAGE = """labs/run LAB [--keep] [--json FILE]   run a lab and show what it must show
       labs/run exec LAB NODE COMMAND...     run a command in a node of a lab that is up
       labs/run down [LAB]                   end labs that were kept up
       labs/run --check                      check all topology files"""

EPILOG = """LAB is one of: {labs}. Environment: ROUTER=bird|frr is what core and ToRs run (default bird); VIPHERALD is
the binary to run (default: target/bin/vipherald, else target/debug/vipherald). Needs root. Exit status: 0 all as
expected, 1 something was not, 2 wrong usage."""


def main():
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    parser = argparse.ArgumentParser(prog="labs/run", usage=USAGE, epilog=EPILOG.format(labs=", ".join(names())))
    parser.add_argument("words", nargs="*", metavar="LAB", help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="leave the lab up when all was as expected")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    parser.add_argument("--check", action="store_true", help="check all topology files and start nothing")
    # Everything after `exec LAB NODE` belongs to the command.
    arguments = sys.argv[1:]
    if arguments[:1] == ["exec"]:
        return execute(parser, arguments[1:])
    options = parser.parse_args(arguments)
    if options.check:
        return check()
    if options.words[:1] == ["down"] and len(options.words) <= 2:
        return down(options.words[1] if len(options.words) == 2 else None)
    if len(options.words) != 1:
        parser.error(f"name one lab: {', '.join(names())}")
    if options.words[0] not in names():
        parser.error(f"no lab is called {options.words[0]}; there are {', '.join(names())}")
    if os.geteuid() != 0:
        parser.error("network namespaces need root")
    return run(options.words[0], options.keep, options.json)


def names():
    """The labs: folders with a topology file of their name."""
    return sorted(path.parent.name for path in LABS.glob("*/*.clab.yml"))


def run(name, keep, results_file):
    """Runs one lab; what went wrong is told on standard error."""
    report = Report()
    report.results.update(lab=name, router=os.environ.get("ROUTER") or ROUTERS[0], kernel=platform.release())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    reason, running, stays = "the runner failed", None, False
    try:
        checked = topology.load(topology_file(name), IMAGES)
        running = Lab(checked, keep)
        report.heading(f"start {len(checked.nodes)} nodes of {name}, state in {running.directory}")
        running.up()
        data = read(running)
        story = next((story for key, story in STORIES.items() if key in data), Scenario)
        scenario = story(running, report, data)
        scenario.run()
        if keep:
            scenario.restore_service()
        reason, stays = None, keep
    except (LabError, topology.TopologyError, OSError) as error:
        reason = str(error)
        if running is not None:
            print(f"\n{running.logs()}", file=sys.stderr)
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if running is not None and not stays:
            running.down()
    return finish(report, name, keep, reason, results_file)


def finish(report, name, keep, reason, results_file):
    """Writes the results, says how it ended and returns the exit status."""
    report.results.update(ok=reason is None, reason=reason)
    if results_file:
        Path(results_file).write_text(json.dumps(report.results, indent=2) + "\n")
    if reason is not None:
        print(f"\nlabs/run: {name}: {reason}", file=sys.stderr)
        return 1
    report.heading("all as expected")
    if keep:
        print(f"The lab is up. Look inside: labs/run exec {name} NODE COMMAND...   End it: labs/run down {name}")
    return 0


def check():
    """Checks every topology file with every router."""
    status = 0
    for name in names():
        for router in ROUTERS:
            try:
                checked = topology.load(topology_file(name), IMAGES, {**os.environ, "ROUTER": router})
                print(f"{name} with {router}: {len(checked.nodes)} nodes, {len(checked.links)} links, valid")
            except topology.TopologyError as error:
                print(error, file=sys.stderr)
                status = 1
    return status


def down(name):
    """Ends the kept labs called `name`, or all."""
    up = labs.running(name)
    for directory, state in up:
        labs.end(directory, state)
        print(f"{state['lab']} is down ({directory})")
    if not up:
        print(f"no lab {name or ''} is up".replace("  ", " "))
    return 0


def execute(parser, words):
    if len(words) < 3:
        parser.error("exec needs a lab, a node and a command")
    try:
        command, environment = labs.command(words[0], words[1], words[2:])
    except LabError as error:
        print(f"labs/run: {error}", file=sys.stderr)
        return 1
    os.execvpe(command[0], command, environment)


def topology_file(name):
    return LABS / name / f"{name}.clab.yml"


def _interrupt(*_):
    raise KeyboardInterrupt
