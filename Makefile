# Slipstream's targets; CONTRIBUTING.md has them as a table. Needs Python 3.11 or newer and make; no root, no compiler.
#
#   make setup   virtual environment, pinned dependencies, a Java for Spark; leaves .venv/bin/slipstream
#   make run     the main job on real input; INPUT="a.log b.log" adds files, KEEP=1 leaves it running
#   make quick   the tests that start no broker and no JVM: a few minutes, for every change
#   make test    all tests, as CI runs them; ARGS="tests/store -k record" chooses, ARGS=--durations=30 says where the time goes
#   make lint    ruff (rules and format) and mypy --strict, of tests names and arguments
#   make interop masters, slaves and name servers, ours and RocketMQ's, in every pairing, killed under load; one store in
#                turn with RocketMQ's broker; clients of both lines in scenes with each; writes docs/interop.md
#   make peers   scenes and histories of RocketMQ's clients at our brokers: what `make test` leaves out
#   make peer-suite  RocketMQ's own integration tests, as published, at brokers of ours; writes docs/peer-suite.md
#   make histories  Java's producers and consumers, with processes killed at seeded moments, checked; writes docs/histories.md
#   make python-histories  the same with Slipstream's clients for Python among them; writes docs/python-histories.md
#   make differential  10^5 operations to RocketMQ 4.9.7, to 5.3.3 and to us, every byte compared; docs/differential.md
#   make fastjson  10^5 JSON texts to RocketMQ's own classes and to ours, values compared; writes docs/fastjson.md
#   make lake-kills  200 times kill -9 of loaders of Iceberg and Delta tables; writes docs/lake-kills.md
#   make kills   50 times kill -9 of what runs a Spark stream, rows counted; writes docs/streaming-kills.md
#   make spark-versions  the tests of the Spark bridge with the oldest PySpark that it supports; writes docs/spark-versions.md
#   make fuzz    10^5 mutated frames at a broker's two ports and at a name server, 4,000 connections; writes docs/fuzz.md
#   make drill   forged acknowledgements, a wiped master, a lost tail: to a RocketMQ 5.3.3 pair and to ours; writes
#                docs/replication-drills.md
#   make promotion  20 (ROUNDS=N) masters killed under load, their slaves promoted; writes docs/promotion.md
#   make simulate  replication in virtual time, SEEDS=100000 plays of faults, and wrong protocols that must be told from
#                the right one; writes docs/simulation.md
#   make reads   the readers against plain ones: 10^6 damaged records, 2 x 10^5 conditions, Spark, memory over 20 GiB
#                (of free disk); writes docs/reads.md
#   make history  a new replica of 4 GiB (GIB=N), killed 20 times on the way, in every direction; writes docs/whole-history.md
#   make queues  a master and a slave with 100,000 queues: filled, idle, stopped, started, killed, verified, read by Spark; about
#                an hour, some GiB of disk; writes docs/queues.md
#   make bench   the figures, with the peers' where their folder is given; writes docs/benchmarks.json
#   make screenshots  the web console's pages as pictures, in docs/pictures; needs a Chromium
#   make image-check  the Dockerfile and compose.yaml linted, their images built and services run by Podman: a pair, its name
#                server, Spark in place; root, Podman, some GiB of disk; writes docs/containers.md
#   make unit-check  the unit of `slipstream init` under a real systemd, in a container of Podman's; root, Podman; writes
#                docs/service.md
#   make wheel   the wheel with its compiled code, in dist; needs a C compiler and Python's headers; KEY=NAME signs it. One
#                for aarch64 too, where its C compiler is there: gcc-aarch64-linux-gnu
#   make wheel-arm  that wheel under qemu-user in an arm64 Debian root: its kernels, a broker, tests; root, debootstrap,
#                qemu-user-static; writes docs/wheel-arm.md
#   make wheel-pythons  the wheel in an empty environment of each Python 3.11 to 3.14 at hand: what a user does first;
#                writes docs/wheel-pythons.md
#   make cluster-demo  a Spark cluster on hosts made of namespaces, two of them with replicas: reads, a stream, a sink, a replica
#                killed, who read what from where; root or user namespaces, some GiB of memory; writes docs/cluster.md
#   make yarn    Spark on a real YARN on loopback, in client and cluster mode: reads, streams and writes, as another user too;
#                the daemons by mvn, once; writes docs/yarn.md
#   make site    the documentation as a site, in build/site, without the network
#   make man     the manual pages in docs/man, from the commands' declarations
#   make clean   removes what these commands made, environments too
#
# requirements.lock is made by this command, in an environment with pip-tools:
#   python -m piptools compile --all-extras --allow-unsafe --strip-extras --no-annotate --no-header \
#     --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options -o requirements.lock pyproject.toml

SHELL := /bin/sh
VENV := .venv
PYTHON := $(VENV)/bin/python
STEP := $(PYTHON) -P tools/common/step.py
STAMP := $(VENV)/setup-done
PYSPARK :=
OLDEST_PYSPARK := 4.2.0
SEEDS := 100000
OTHERS = $(filter-out $(shell uname -m),x86_64 aarch64)
WHEEL = SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct || date +%s) \
  $(PYTHON) -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_WARN_SCRIPT_LOCATION = 1

.PHONY: setup run quick test peers lint bench fuzz simulate reads interop differential fastjson kills lake-kills drill promotion history queues peer-suite histories python-histories spark-versions screenshots image-check unit-check wheel-pythons wheel-arm wheel cluster-demo yarn site man clean

setup: $(STAMP)

# pyspark comes as source and is built with the pinned setuptools, as this folder is: nothing but the lock's versions is
# ever fetched.
$(STAMP): requirements.lock pyproject.toml
	@python=; for candidate in python3 python3.11 python3.12 python3.13 python3.14; do \
	  if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Slipstream needs Python 3.11 or newer with its venv module (on Debian the package python3-venv)" >&2; exit 2; \
	fi; \
	if ! $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  rm -rf $(VENV) && $$python -P tools/common/step.py "setup: environment" $$python -m venv $(VENV); \
	fi
	@echo "setup: dependencies (the first time takes some minutes: PySpark is large)"
	@sed 's/^pyspark==.*/$(if $(PYSPARK),pyspark==$(PYSPARK),&)/' requirements.lock > $(VENV)/requirements.txt
	@grep -E '^(setuptools|wheel)==' $(VENV)/requirements.txt > $(VENV)/build-requirements.txt
	@$(STEP) "setup: what builds packages" $(PYTHON) -m pip install --quiet -r $(VENV)/build-requirements.txt
	@$(STEP) "setup: packages" $(PYTHON) -m pip install --quiet --no-build-isolation -r $(VENV)/requirements.txt
	@$(STEP) "setup: this folder" $(PYTHON) -m pip install --quiet --no-build-isolation --no-deps --editable .
	@$(STEP) "setup: Java and Spark" $(PYTHON) -c \
	  'import sys; from spark_bridge import java_home, spark_home; sys.exit(java_home.main() or spark_home.main())'
	@$(PYTHON) -m tools.dev.carried
	@$(PYTHON) -m compileall -q engine ipc spark_bridge store tools
	@touch $@

run: setup
	@$(VENV)/bin/slipstream run $(foreach file,$(INPUT),--input $(file)) $(if $(filter-out 0,$(KEEP)),--keep) $(ARGS)

# The marks are given by tests/conftest.py, which also sees to it that a test without them starts nothing of the kind.
quick: setup
	@$(PYTHON) -m pytest -n auto -m "not (broker or crash or interop or slow or spark)" $(ARGS)

# Kernels first, and Java's archives of classes: nothing that a test starts spends its time on making them.
test: setup
	@$(PYTHON) -m tests.harness.spark_java & classes=$$!; $(PYTHON) -m tools.dev.carried && wait $$classes
	@$(PYTHON) -m tests.interop.archives
	@$(PYTHON) -m pytest -n auto -m "not peer" $(ARGS)

peers: setup
	@$(PYTHON) -m pytest -n 1 -m peer $(ARGS)

lint: setup
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check --quiet . || { echo "run: $(PYTHON) -m ruff format ." >&2; exit 1; }
	@$(PYTHON) -m mypy

differential: setup
	@$(PYTHON) -m tests.differential --ledger docs/differential.md $(ARGS)

fastjson: setup
	@$(PYTHON) -m tests.interop.json_texts --ledger docs/fastjson.md $(ARGS)

kills: setup
	@$(PYTHON) -m tests.spark_bridge.stream_kills --ledger docs/streaming-kills.md $(ARGS)

lake-kills: setup
	@$(PYTHON) -m tests.spark_bridge.lake_kills all --kills 100 --ledger docs/lake-kills.md $(ARGS)

drill: setup
	@$(PYTHON) -m tests.interop.drills --ledger docs/replication-drills.md $(ARGS)

promotion: setup
	@$(PYTHON) -m tests.crash.promotion --ledger docs/promotion.md $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

history: setup
	@$(PYTHON) -m tests.crash.whole_history --ledger docs/whole-history.md $(if $(GIB),--gib $(GIB)) $(ARGS)

spark-versions:
	@$(MAKE) --no-print-directory setup VENV=.venv-oldest-spark PYSPARK=$(OLDEST_PYSPARK)
	@.venv-oldest-spark/bin/python -m tests.spark_bridge.versions --ledger docs/spark-versions.md $(ARGS)

fuzz: setup
	@mkdir -p docs && $(PYTHON) -m tests.fuzz --ledger docs/fuzz.md $(ARGS)

simulate: setup
	@mkdir -p docs && $(PYTHON) -m tests.simulation --ledger docs/simulation.md --seeds $(SEEDS) $(ARGS)

reads: setup
	@mkdir -p docs && $(PYTHON) -m tests.reads --ledger docs/reads.md $(ARGS)

queues: setup
	@$(PYTHON) -m tests.queues --ledger docs/queues.md $(ARGS)

bench: setup
	@$(PYTHON) -m tools.dev.bench --ledger docs/benchmarks.json $(ARGS)
	@$(PYTHON) -m tools.dev.docs.scale > docs/scale.arriving && mv docs/scale.arriving docs/scale.md

interop: setup
	@mkdir -p docs && $(PYTHON) -m tests.interop docs/interop.md $(ARGS)

peer-suite: setup
	@mkdir -p docs && $(PYTHON) -m tests.interop.peer_suite_ledger docs/peer-suite.md $(ARGS)

histories: setup
	@mkdir -p docs && $(PYTHON) -m tests.histories --ledger docs/histories.md $(ARGS)

python-histories: setup
	@mkdir -p docs && $(PYTHON) -m tests.histories --python --ledger docs/python-histories.md $(ARGS)

screenshots: setup
	@$(PYTHON) -m tests.tools.web.screenshots docs/pictures $(ARGS)

image-check: setup
	@$(PYTHON) -m tests.tools.dev.packaging.image_check --ledger docs/containers.md $(ARGS)

unit-check: setup
	@$(PYTHON) -m tests.tools.dev.packaging.unit_check --ledger docs/service.md $(ARGS)

wheel: setup
	@$(if $(KEY),gpg --batch --list-secret-keys '$(KEY)' > /dev/null)
	@$(PYTHON) -m tools.dev.carried
	@$(WHEEL) .
	@for machine in $(OTHERS); do \
	  code=0; $(PYTHON) -m tools.dev.carried --machine $$machine || code=$$?; \
	  if [ $$code = 0 ]; then $(WHEEL) --config-settings machine=$$machine . || exit 1; fi; \
	  if [ $$code != 0 ] && [ $$code != 3 ]; then exit 1; fi; \
	done
	@$(if $(KEY),for made in dist/*.whl; do gpg --batch --yes --local-user '$(KEY)' --armor --detach-sign "$$made"; done)

wheel-pythons: setup
	@$(PYTHON) -m tests.tools.dev.packaging.wheel_pythons --ledger docs/wheel-pythons.md $(ARGS)

wheel-arm: wheel
	@$(PYTHON) -m tests.tools.dev.packaging.wheel_arm --ledger docs/wheel-arm.md $(ARGS)

cluster-demo: setup
	@$(PYTHON) -m tools.dev.cluster --ledger docs/cluster.md $(ARGS)

yarn: setup
	@$(PYTHON) -m tests.yarn --ledger docs/yarn.md $(ARGS)

site: setup
	@$(PYTHON) -m tools.dev.docs $(ARGS)

man: setup
	@$(PYTHON) -m tools.dev.docs.man_pages

clean:
	@rm -rf .venv .venv-oldest-spark __pycache__ build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse
	@find engine ipc spark_bridge store tools tests -name __pycache__ -type d -prune -exec rm -rf {} +
