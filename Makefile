# The ways in. Each target installs what it needs into .venv first, once.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= verso-data
FAULTS ?= 1000
OVERLAY ?= cpu
PROVE_HOURS ?= 4
PROVE_MINUTES ?= $(shell echo $$(($(PROVE_HOURS) * 60)))
TESTERS ?= 5
SEED ?= $(shell date +%s)
YAML_RULES := {extends: default, rules: {line-length: {max: 120}, document-start: disable, comments: {min-spaces-from-content: 1}}}
# Compiled codec kernels are kept inside the checkout, so a second run starts at once.
export NUMBA_CACHE_DIR ?= $(CURDIR)/$(VENV)/numba

.PHONY: help setup demo up test integrations sdks chaos prove check-cluster lint client types bench console flame million evaluate evaluate-tasks evaluate-all fuzz clean images e2e-ops dist lock

help:  ## show the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Verso needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

# One stamp an extra: .venv/.installed-standalone, .venv/.installed-dev
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

setup: $(VENV)/.installed-dev  ## install everything a developer needs, and compile the codec of lines
	$(BIN)/python -m verso_codecs.logs.warm

demo: $(VENV)/.installed-standalone  ## take in the sample corpus, search it, read it all back
	$(BIN)/verso demo --json demo-report.json

up: $(VENV)/.installed-standalone  ## run the platform on this machine (DATA=folder)
	$(BIN)/verso up --data $(DATA)

# A file's tests stay together, as they share a platform; the longest files go first. Platforms wait
# more than they compute, so five testers fit on two cores. Bytecode is kept whatever the
# environment says: the tests start hundreds of processes, and each would compile all it imports.
test chaos: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.installed-dev  ## unit, integration, end-to-end tests and a short storm, five at a time (TESTERS=n)
	$(BIN)/pytest -n $(TESTERS) --dist loadfile --no-loadscope-reorder

# LangChain, Haystack, LlamaIndex, MTEB and torch have an environment of their own, with the client.
FRAMEWORKS := $(VENV)/integrations

$(FRAMEWORKS)/.installed: tests/frameworks/requirements.txt tests/frameworks/constraints.txt pyproject.toml constraints.txt | $(BIN)/python
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[client]' -r tests/frameworks/requirements.txt
	@touch $@

integrations: $(VENV)/.installed-standalone $(FRAMEWORKS)/.installed  ## suites of frameworks, in an environment of their own (2 GB, with torch)
	$(FRAMEWORKS)/bin/mypy --config-file shared/integrations/mypy.ini
	VERSO_PYTHON=$(CURDIR)/$(BIN)/python $(FRAMEWORKS)/bin/pytest -c tests/frameworks/pytest.ini --ignore tests/frameworks/sdks tests/frameworks

# LangChain's classes of other servers hold those servers' SDKs back, so they have another one.
SDKS := $(VENV)/sdks

$(SDKS)/.installed: tests/frameworks/sdks/requirements.txt tests/frameworks/sdks/constraints.txt pyproject.toml | $(BIN)/python
	$(PYTHON) -m venv $(SDKS)
	$(SDKS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[client]' -r $<
	@touch $@

sdks: $(VENV)/.installed-standalone $(SDKS)/.installed  ## LangChain's own classes for OpenAI, Cohere and Hugging Face, in an environment of their own
	VERSO_PYTHON=$(CURDIR)/$(BIN)/python $(SDKS)/bin/pytest -c tests/frameworks/pytest.ini tests/frameworks/sdks

chaos: $(VENV)/.installed-dev  ## every crash point, ten power cuts, then 1,000 faults on a platform under load (FAULTS=n)
	CRASH_PLACES=all POWER_CUTS=10 NETWORK_ROUNDS=20 $(BIN)/pytest tests/chaos
	PYTHONPATH=.:tests/bench $(BIN)/python -m tests.chaos.storm --faults $(FAULTS)

prove: export PYTHONPATH = .:tests/bench
prove: $(VENV)/.installed-dev  ## the long proof: simulation, power cuts, faults under load for PROVE_HOURS or PROVE_MINUTES; writes docs/research/proof.md
	$(BIN)/python -m tests.chaos.prove --minutes $(PROVE_MINUTES)

lint: $(VENV)/.installed-dev  ## style, import contracts, deployment files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tests/unasync.py --check
	$(BIN)/python tests/contract_table.py --check docs/reference/ledger.md
	@if command -v npm >/dev/null; then \
	  $(MAKE) --no-print-directory services/console/node_modules && $(BIN)/python tests/compile_console.py --check; \
	  elif [ -n "$$CI" ]; then echo 'npm not found'; exit 1; \
	  else echo 'npm not found: the console is not compiled again'; fi
	$(BIN)/yamllint --strict -d '$(YAML_RULES)' docker-compose.yml k8s services/monitoring tests/monitoring
	$(BIN)/hadolint services/*/Dockerfile training/Dockerfile
	@if command -v promtool >/dev/null; then \
	  promtool check config services/monitoring/prometheus.yml && promtool test rules tests/monitoring/*.yml; \
	  elif [ -n "$$CI" ]; then echo 'promtool not found'; exit 1; \
	  else echo 'promtool not found (it comes with the prometheus package): alerts are not tested'; fi
	$(BIN)/pytest -q tests/unit/test_deployment.py tests/unit/test_kubernetes.py tests/unit/test_monitoring.py

client: $(VENV)/.installed-dev  ## generate the synchronous client from the asynchronous one
	$(BIN)/python tests/unasync.py

console: $(VENV)/.installed-dev services/console/node_modules  ## compile the console's TypeScript (needs Node)
	$(BIN)/python tests/compile_console.py

services/console/node_modules: services/console/package-lock.json
	npm ci --prefix services/console --no-audit --no-fund --ignore-scripts --loglevel=error
	@touch $@

# Older releases of pip download a wheel, several GB in all, to read its metadata.
lock: $(VENV)/.installed-dev  ## find the hashes of the images' libraries, after a change of constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=26'
	$(BIN)/python tests/lock.py

types: $(VENV)/.installed-dev  ## mypy, strict
	$(BIN)/mypy

bench: $(VENV)/.installed-dev  ## every bench on the shipped data; each ends with one JSON line
	$(BIN)/python tests/bench/bench_storage.py
	$(BIN)/python tests/bench/bench_ngram.py
	$(BIN)/python tests/bench/bench_restore.py
	$(BIN)/python tests/bench/bench_encode.py
	$(BIN)/python tests/bench/bench_serve.py --rivals
	$(BIN)/python tests/bench/bench_queue.py
	$(BIN)/python tests/bench/bench_feed.py
	$(BIN)/python tests/bench/bench_scale.py
	$(BIN)/python tests/bench/bench_cost.py --threads 1

evaluate: $(VENV)/.installed-dev  ## the heads on public sets, DATA=folder; writes docs/research/quality.md
	PYTHONPATH=training $(BIN)/python -m studies quality --data $(DATA) --artifact models/default --models models \
	  --work runs/quality --out docs/research/quality.md

evaluate-tasks: $(VENV)/.installed-dev  ## published experiments with adapters, hours of one core, DATA=folder; goes on where it stopped
	PYTHONPATH=training $(BIN)/python -m studies tasks --data $(DATA) --artifact models/default \
	  --work runs/quality --out docs/research/quality.md

evaluate-all: evaluate evaluate-tasks  ## every table of docs/research/quality.md, DATA=folder

images: $(VENV)/.installed-dev  ## build the images for real, look into them, print their sizes (root, buildah, debootstrap)
	$(BIN)/pytest -s tests/images

e2e-ops: $(VENV)/.installed-dev  ## compose's services as processes under load, watched by a real Prometheus
	CI=true $(BIN)/pytest tests/ops

fuzz: $(VENV)/.installed-dev  ## property tests with other examples (SEED=n), then five minutes each of made-up texts, lines and requests
	$(BIN)/pytest -m hypothesis --hypothesis-profile=fuzz --hypothesis-seed=$(SEED) tests/unit tests/integration
	$(BIN)/python tests/bench/fuzz_codecs.py --minutes 5 --seed $(SEED)
	$(BIN)/python tests/bench/fuzz_logs.py --minutes 5 --seed $(SEED)
	$(BIN)/python tests/bench/fuzz_feed.py --minutes 5 --seed $(SEED)

flame: $(VENV)/.installed-dev  ## where each process spends its time under load: folded stacks in ./flame
	$(BIN)/python tests/bench/flame.py --out flame

million: $(VENV)/.installed-dev  ## a million records in, processes killed on the way, all read again
	$(BIN)/python tests/bench/bench_million.py --artifact tests/data/artifact-tiny

dist: $(VENV)/.installed-dev  ## build the wheels of the platform and of its models, and the platform's sdist, into ./dist, with install.yaml for kubectl
	$(BIN)/python -m hatchling build -d dist
	cd models && ../$(BIN)/python -m hatchling build -t wheel -d ../dist
	$(BIN)/kubectl kustomize k8s/overlays/$(OVERLAY) >dist/install.yaml

check-cluster: $(VENV)/.installed-dev  ## apply an overlay to the cluster of your kubectl, kill pods while documents come in, read them back (OVERLAY=name)
	PYTHONPATH=. $(BIN)/python tests/ops/check_cluster.py --overlay k8s/overlays/$(OVERLAY)

clean:  ## remove what was installed and built, never data
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
