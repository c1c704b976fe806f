"""The papers for Docker and Kubernetes say nothing that the server does not know: settings, flags, ports, paths."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dragoman.asgi.ops_endpoints import API, OpsHandlers
from dragoman.cli.main import commands
from dragoman.cli.main import serve as serve_command
from dragoman.engine.instrumentation import metrics
from dragoman.server.runner import GRACEFUL_SHUTDOWN_TIMEOUT_S
from dragoman.settings import ENVIRONMENT_PREFIX, Settings
from dragoman.settings import all_settings as known_settings
from dragoman.settings_loading import load
from dragoman.stores.postgres.database import MIN_SERVER_VERSION

PROJECT_ROOT = Path(__file__).resolve().parent.parent
DEPLOY = PROJECT_ROOT / "deploy"
SPARE_S = 5
"""What a server gets at its end beyond what it may need."""

Yaml = Any


class DeclaredRun(NamedTuple):
    """A way in which a paper runs the program: its arguments, and the environment that it has there."""

    where: str
    arguments: Sequence[str]
    environ: Mapping[str, str]


def compose() -> Yaml:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def observability(name: str) -> Yaml:
    """A file of the stack beside the server. JSON is YAML."""
    return yaml.safe_load((DEPLOY / "observability" / name).read_text())


def kubernetes() -> Mapping[str, Yaml]:
    """The objects by their kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def pod() -> Yaml:
    return kubernetes()["Deployment"]["spec"]["template"]["spec"]


def container() -> Yaml:
    return pod()["containers"][0]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with what follows them."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def image_command() -> list[str]:
    found: list[str] = yaml.safe_load(dict(instructions())["CMD"])
    return found


def runs() -> Iterator[DeclaredRun]:
    service = compose()["services"]["dragoman"]
    secrets = {name: filled(value) for name, value in service["environment"].items()}
    yield DeclaredRun("compose.yaml", service["command"], secrets)
    traced = yaml.safe_load((DEPLOY / "observability.yaml").read_text())["services"]["dragoman"]["environment"]
    yield DeclaredRun("observability.yaml", service["command"], {**secrets, **traced})
    env = {
        each["name"]: each.get("value") or f"postgresql://from-a-secret/{each['name']}" for each in container()["env"]
    }
    yield DeclaredRun("kubernetes.yaml", container()["args"], {**env, "DRAGOMAN_NATS": "tls://from.a.secret:4222"})
    yield DeclaredRun("Dockerfile", image_command(), {})


def filled(value: str) -> str:
    """A value of the compose file with something in place of what comes from outside."""
    return re.sub(r"\$\{\w+:\?\}", "from-outside", value)


def settings_of(run: DeclaredRun) -> Settings:
    """The settings that a paper's run has. Fails as the server would on what it does not know."""
    command, *arguments = run.arguments
    assert command == "serve"
    given = dict(serve_command.make_context("serve", arguments).params)
    given["agents"] = given["agents"] or None
    environ = {name: value for name, value in run.environ.items() if name.startswith(ENVIRONMENT_PREFIX)}
    return load(given, environ, folder=PROJECT_ROOT / "deploy").settings


@pytest.mark.parametrize("run", [*runs()], ids=lambda run: run.where)
def test_every_flag_and_variable_is_one_that_the_server_takes(run: DeclaredRun) -> None:
    settings = settings_of(run)
    assert (settings.host, settings.port, settings.auth) == ("0.0.0.0", 8000, True)
    assert all(name.startswith((ENVIRONMENT_PREFIX, "OPENAI_")) for name in run.environ)


@pytest.mark.parametrize("run", [each for each in runs() if each.environ], ids=lambda run: run.where)
def test_the_examples_run_on_postgresql_with_nats(run: DeclaredRun) -> None:
    settings = settings_of(run)
    assert settings.database is not None
    assert settings.nats is not None
    assert settings.log_format == "json"
    assert len(settings.agents) == 1


def test_the_commands_in_their_comments_are_the_programs() -> None:
    names = ("compose.yaml", "observability.yaml", "kubernetes.yaml")
    lines = [line for name in names for line in (DEPLOY / name).read_text().splitlines()]
    pattern = re.compile(r"#.*(?:--|exec dragoman) dragoman (.*)")
    found = [shlex.split(match[1]) for line in lines if (match := pattern.match(line))]
    assert len(found) == 3
    for group, command, *arguments in found:
        commands.commands[group].commands[command].make_context(command, arguments)  # type: ignore[attr-defined]  # a group


# --- ports, probes, times ---------------------------------------------------------------------------------------------


def test_the_port_is_the_same_everywhere() -> None:
    kube = kubernetes()
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"http": 8000}
    assert [port["targetPort"] for port in kube["Service"]["spec"]["ports"]] == ["http"]
    assert dict(instructions())["EXPOSE"] == "8000"
    assert compose()["services"]["dragoman"]["ports"] == ["127.0.0.1:8000:8000"]


def test_probes_ask_what_the_server_answers_without_a_key() -> None:
    open_pages = {route.path for route in API.routes(OpsHandlers) if route.is_public}
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    probes = {kind: container()[kind]["httpGet"] for kind in kinds}
    assert {probe["path"] for probe in probes.values()} <= open_pages
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert probes["readinessProbe"]["path"] == "/readyz"
    assert probes["livenessProbe"]["path"] == "/healthz", "a database that is away is no reason to start again"
    assert "http://127.0.0.1:8000/readyz" in str(compose()["services"]["dragoman"]["healthcheck"]["test"])


def test_who_is_asked_to_stop_has_time_to_drain() -> None:
    compose_run, _, kube_run, _ = runs()
    waits = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert waits[0] == "sleep"
    needed = settings_of(kube_run).drain_s + GRACEFUL_SHUTDOWN_TIMEOUT_S + SPARE_S
    assert pod()["terminationGracePeriodSeconds"] >= int(waits[1]) + needed
    grace = compose()["services"]["dragoman"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) >= settings_of(compose_run).drain_s + GRACEFUL_SHUTDOWN_TIMEOUT_S + SPARE_S


def test_the_balancer_hears_of_a_drain_before_it_ends() -> None:
    probe = container()["readinessProbe"]
    _, _, kube_run, _ = runs()
    assert probe["periodSeconds"] * probe["failureThreshold"] < settings_of(kube_run).drain_s


# --- what belongs together --------------------------------------------------------------------------------------------


def test_objects_find_each_other_by_their_labels() -> None:
    kube = kubernetes()
    labels = kube["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        kube["Deployment"]["spec"]["selector"]["matchLabels"],
        kube["Service"]["spec"]["selector"],
        kube["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ]
    assert selectors == [labels] * 3


def test_secrets_and_files_that_are_named_are_made_by_the_commands_above_them() -> None:
    text = (DEPLOY / "kubernetes.yaml").read_text()
    made = set(re.findall(r"--from-literal=(\w+)=", text))
    asked = {each["valueFrom"]["secretKeyRef"]["key"] for each in container()["env"] if "valueFrom" in each}
    assert asked == made
    volumes = {each["name"]: each for each in pod()["volumes"]}
    mounted = {
        each["name"] for kind in ("initContainers", "containers") for one in pod()[kind] for each in one["volumeMounts"]
    }
    assert mounted == set(volumes)
    assert f"create secret generic {volumes['keys']['secret']['secretName']} " in text
    assert f"create configmap {volumes['agents']['configMap']['name']} " in text
    assert {file.rpartition(" ")[2] for file in re.findall(r"--from-file=(\S+)", text)} == {
        "secrets.key", "links.key", "app.py",
    }  # fmt: skip


def test_the_keys_lie_where_the_server_looks_for_them() -> None:
    _, _, kube_run, _ = runs()
    (init,) = pod()["initContainers"]
    assert f"--mode=0700 {settings_of(kube_run).data} " in init["command"][-1]
    assert init["command"][-1].endswith(settings_of(kube_run).data)


def test_a_new_release_takes_the_place_of_the_old_one_server_by_server() -> None:
    spec = kubernetes()["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (
        2,
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
    )
    assert kubernetes()["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_the_image_installs_lists_that_exist_and_copies_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    match = re.search(r"for list in ([\w ]+);", text)
    assert match is not None
    assert all((PROJECT_ROOT / "requirements" / f"{name}.txt").is_file() for name in match[1].split())
    assert {"postgres", "nats", "s3"} <= set(match[1].split())
    assert re.search(r"^console:", (PROJECT_ROOT / "Makefile").read_text(), re.MULTILINE)
    user = dict(instructions())["USER"]
    assert pod()["securityContext"]["runAsUser"] == int(user) != 0
    assert settings_of(next(run for run in runs() if run.where == "Dockerfile")).data == dict(instructions())["VOLUME"]
    build = compose()["services"]["dragoman"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"


def test_the_services_of_the_compose_file_know_each_other() -> None:
    services = compose()["services"]
    (run, *_) = runs()
    settings = settings_of(run)
    assert settings.database is not None
    assert f"@postgres/{services['postgres']['environment']['POSTGRES_DB']}" in settings.database
    assert settings.nats == "nats://dragoman:from-outside@nats:4222"
    assert services["nats"]["command"][1] == "dragoman"
    assert int(services["postgres"]["image"].partition(":")[2]) >= MIN_SERVER_VERSION
    assert (PROJECT_ROOT / "examples" / settings.agents[0]).is_file()
    assert set(compose()["volumes"]) == {"data", "database"}


# --- metrics and traces ----------------------------------------------------------------------------------------------


def metric_labels() -> dict[str, set[str]]:
    """The labels of every series that `/metrics` exposes, and those that Prometheus adds."""
    from_prometheus = {"instance", "job"}
    known = {"up": from_prometheus}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            known[sample.name] = from_prometheus | sample.labels.keys()
    for metric in metrics.ALL_METRICS:
        suffixes = {metrics.Histogram: ("_bucket", "_count", "_sum"), metrics.Gauge: ("",)}.get(
            type(metric), ("_total",)
        )
        for suffix in suffixes:
            known[metric.name + suffix] = from_prometheus | {*metric.label_names, "le"}
    return known


def expressions() -> list[str]:
    targets = [target for panel in observability("dashboard.json")["panels"] for target in panel.get("targets", ())]
    alerts = [rule for group in observability("alerts.yaml")["groups"] for rule in group["rules"]]
    return [each["expr"] for each in (*targets, *alerts) if "expr" in each]


def test_the_dashboard_and_the_alerts_name_metrics_and_labels_that_the_server_has() -> None:
    known = metric_labels()
    asked = set()
    for expression in expressions():
        names = re.findall(r"\b(?:dragoman|process|python)_\w+|\bup\b", expression)
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        matched = re.findall(r"[{,](\w+)=", expression)
        labels = {label.strip() for each in grouped for label in each.split(",")} | {*matched}
        assert names, expression
        assert {name for name in names if not labels <= known.get(name, set())} == set(), expression
        asked |= {*names}
    assert len(asked) > 15
    ours = {metric.name for metric in metrics.ALL_METRICS}
    assert {"dragoman_runs_stopped", "dragoman_commit_seconds", "dragoman_model_first_seconds"} <= ours


def test_every_panel_asks_a_data_source_that_is_provisioned() -> None:
    sources = {each["uid"]: each for each in observability("grafana.yaml")["datasources"]}
    dashboard = observability("dashboard.json")
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert {(each["datasource"]["uid"], each["datasource"]["type"]) for each in panels} == {
        (uid, source["type"]) for uid, source in sources.items()
    }
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    taken = [(x, y) for panel in dashboard["panels"] for x, y in cells(panel["gridPos"])]
    assert len(taken) == len({*taken}), "panels overlap"


def cells(place: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    assert columns.stop <= 24
    return product(columns, rows)


def test_the_services_that_observe_reach_the_server_and_each_other() -> None:
    paper = yaml.safe_load((DEPLOY / "observability.yaml").read_text())
    services = paper["services"]
    (scrape,) = observability("prometheus.yml")["scrape_configs"]
    assert scrape["metrics_path"] in {route.path for route in API.routes(OpsHandlers)}
    assert scrape["static_configs"] == [{"targets": ["dragoman:8000"]}]
    assert scrape["authorization"]["credentials_file"] == "/etc/prometheus/metrics.key"
    assert "/deploy/observability/metrics.key" in (PROJECT_ROOT / ".gitignore").read_text().split()

    receiver = observability("tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    settings = settings_of(next(run for run in runs() if run.where == "observability.yaml"))
    assert (settings.otel, settings.otel_endpoint) == (True, f"http://tempo:{receiver.split(':')[1]}/v1/traces")
    ports = {"prometheus": 9090, "tempo": observability("tempo.yaml")["server"]["http_listen_port"]}
    assert {each["uid"]: each["url"] for each in observability("grafana.yaml")["datasources"]} == {
        name: f"http://{name}:{port}" for name, port in ports.items()
    }
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    assert {each for each in mounted if each.startswith(".") and not (DEPLOY / each).exists()} == set()
    assert {each for each in mounted if not each.startswith(".")} == set(paper["volumes"])


# --- the table of failures --------------------------------------------------------------------------------------------


def test_log_messages_and_metrics_in_the_table_of_failures_exist() -> None:
    """In the table they are written as code."""
    text = (PROJECT_ROOT / "docs" / "operations.md").read_text()
    table = text[text.index("## Troubleshooting") :]
    quoted = {each for row in table.splitlines() if row.startswith("| ") for each in re.findall(r"`([^`]+)`", row)}
    known = "\n".join(path.read_text() for path in (PROJECT_ROOT / "src" / "dragoman").rglob("*.py"))
    names = {each.partition("{")[0].removesuffix("_total").removesuffix("_bucket") for each in quoted}
    assert len(names) > 15
    settings = {each.name for each in known_settings()}
    assert {each for each in names - settings if f'"{each}"' not in known and each not in DOCUMENTED_ELSEWHERE} == set()


DOCUMENTED_ELSEWHERE = {"/readyz", "dragoman check --accept-loss", "dragoman check --repair"}
"""Code in the table that is an address or a command, not a log message, metric, setting or state."""
