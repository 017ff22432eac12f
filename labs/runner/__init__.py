# SPDX-License-Identifier: Apache-2.0
"""Runs the labs: containerlab topology files started in plain network namespaces, without Docker."""
