"""The HTTP application: its routers, its middlewares, and what it opens.

`create_app` is pure wiring, so tests pass their own services; `open_services` connects to the
real ones. Served by Granian: `headrace api`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx
from confluent_kafka import KafkaException
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry, values
from prometheus_client.multiprocess import MultiProcessCollector

from api import commands, health, problem
from api.auth import Authenticate, Verifier
from api.keys import FETCH_TIMEOUT_S, KeyFile, Keys, KeyUrl
from api.limiter import Limit, Limiter
from api.limits import Admission, Headers, Rate, Receipt
from api.positions import Waiting
from api.responder import Responder
from api.routes import (
    ads,
    chat,
    feed,
    ids,
    leaderboard,
    limiter,
    links,
    notifications,
    pastes,
    payments,
    telemetry,
    typeahead,
    webhooks,
)
from api.routes.chat.opening import open_chat
from api.routes.telemetry.metrics import QUERY_TIMEOUT_S
from api.routing import described, include
from api.services import CountedProducer, Readiness, Services
from api.suggesting import open_suggester
from api.traces import Traced
from connectors.asking import Asking
from connectors.compacted import Feed
from connectors.encode import Encoder
from connectors.ids.issuer import Issuer
from connectors.limiter.decisions import DecisionLog
from connectors.limiter.rulebook import Rulebook
from connectors.links.clicks import ClickLog
from connectors.links.redirects import Redirects
from connectors.pastes.highlighting import Highlighter
from connectors.pastes.making import Making
from connectors.pastes.passwords import Passwords
from connectors.pastes.reading import Reading
from connectors.producer import LogProducer
from connectors.replies import RedisReplies
from connectors.telemetry.intake import Intake
from schemas import catalog
from schemas.chat.events import EVENTS as CHAT
from schemas.ids.snowflake import PUBLIC_CHARS
from schemas.limiter.events import RULES
from schemas.registry import schema_ids
from sinks.ads import HISTORY, WINDOWS
from sinks.ads.history import AdsAudit, AdsHistory
from sinks.ads.windows import AdsReader
from sinks.chat.reader import ChatReader
from sinks.feed.reader import FeedReader
from sinks.ids import IdsReader
from sinks.leaderboard import BOARDS, LeaderboardReader
from sinks.limiter import DECIDED, DecidedReader
from sinks.limiter.counters import Counters
from sinks.limiter.leases import Leases
from sinks.links import ClicksReader, LinksReader
from sinks.notifications import DELIVERIES, TEMPLATES, TRAIL
from sinks.notifications.reader import NotificationsReader, TemplatesReader
from sinks.open import open_cassandra_reader, open_clickhouse_reader, open_redis_reader
from sinks.pastes.objects import S3Objects
from sinks.pastes.reader import PastesReader
from sinks.payments import BOOKS as PAYMENT_BOOKS
from sinks.payments.books import BookReader
from sinks.payments.payments import PaymentReader
from sinks.telemetry.open import open_telemetry
from sinks.webhooks import WEBHOOKS
from sinks.webhooks.reader import WebhooksReader
from streams.runtime import kafka, logging, tracing
from streams.runtime.avro import RegistrySource
from streams.runtime.metrics import Metrics, default
from streams.runtime.permutation import Codes
from streams.runtime.settings import ApiLimits, Settings, home
from streams.runtime.topic import Topic

ROUTERS = (
    health.router,
    commands.router,
    ads.writes,
    ads.router,
    *ids.ROUTERS,
    feed.writes,
    feed.router,
    *chat.ROUTERS,
    leaderboard.writes,
    leaderboard.scores,
    leaderboard.router,
    *payments.ROUTERS,
    limiter.rules,
    limiter.allowing,
    limiter.router,
    notifications.sending,
    notifications.router,
    notifications.callbacks,
    webhooks.endpoints,
    webhooks.messages,
    *pastes.ROUTERS,
    *typeahead.ROUTERS,
    *telemetry.ROUTERS,
    *links.ROUTERS,
)
"""Every route of the product; there is no discovery."""

BROKER_TIMEOUT_S = 3.0
SWITCH_S = 0.000_5
"""How long a thread may keep the others from running Python."""
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment's name for where worker processes keep their counts (prometheus_client)."""

Opener = Callable[[], AbstractAsyncContextManager[Services]]


def create_app(
    opener: Opener,
    limits: ApiLimits | None = None,
    metrics: Metrics | None = None,
    *,
    metrics_public: bool = False,
) -> FastAPI:
    """The application over whatever services `opener` opens for its lifespan."""
    limits = limits or ApiLimits()
    metrics = metrics or Metrics(CollectorRegistry())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opener() as services:
            app.state.services = services
            gc.freeze()  # a look at all that was imported stops every request for 0.2 s
            # The server's threads hand requests over through the interpreter's lock.
            sys.setswitchinterval(SWITCH_S)
            try:
                yield
            finally:
                await app.state.waiting.close()

    app = FastAPI(
        title="Headrace",
        version=_version(),
        description="Write events to the log; read what has been folded from it. A write answers "
        "`Headrace-Position`; send it as `Headrace-After` to read your write.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # else any word with a slash behind it would be led to a link
    )
    app.state.registry = metrics.registry
    app.state.metrics_public = metrics_public
    app.state.rate = Rate(limits.rate_per_s, limits.rate_burst)
    app.state.waiting = Waiting(max(1, limits.concurrency_max // 2))
    problem.install(app)
    include(app, ROUTERS)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]

    def limits_of() -> Limiter | None:
        services: Services = app.state.services
        return services.limiter

    def verifier() -> Verifier:
        services: Services = app.state.services
        return services.verifier

    # Starlette puts the one added last outermost: read upwards.
    app.add_middleware(Admission, limits=limits)
    app.add_middleware(Receipt, limits=limits, encoded=telemetry.ENCODED, large=pastes.LARGE)
    app.add_middleware(Limit, limiter=limits_of)
    app.add_middleware(Authenticate, verifier=verifier, rate=app.state.rate)
    app.add_middleware(Headers, limits=limits)
    app.add_middleware(Responder, durations=metrics.api.request)
    return app


def document() -> dict[str, Any]:
    """The OpenAPI document, without opening anything."""

    def unopened() -> AbstractAsyncContextManager[Services]:
        raise RuntimeError("this application is only described, not served")

    return create_app(unopened).openapi()


def production() -> FastAPI:
    """The application over the real services, from the settings; Granian's entry, called in each
    worker process. Each takes its part of a subject's rate; `/metrics` is the sum of all.
    """
    settings = Settings.read()
    logging.configure(settings.log_level)
    several, limits = settings.api.workers, settings.api.limits
    if several > 1:
        # The parent imported the client before it knew that there would be several processes.
        values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    metrics = default()
    limits = limits.model_copy(
        update={
            "rate_per_s": limits.rate_per_s / several,
            "rate_burst": max(1, limits.rate_burst // several),
        }
    )
    app = create_app(lambda: open_services(settings, metrics), limits, metrics)
    if tracing.configure("headrace-api"):
        app.add_middleware(Traced)
    if several > 1:
        app.state.registry = CollectorRegistry()
        MultiProcessCollector(app.state.registry)  # type: ignore[no-untyped-call]
    return app


@asynccontextmanager
async def open_services(settings: Settings, metrics: Metrics) -> AsyncIterator[Services]:
    """Connect to the log. Fails at once, with a reason, where a schema is not registered."""
    topics = tuple(catalog.topics().values())
    registered = await asyncio.to_thread(
        lambda: {t.name: schema_ids(t, settings.registry) for t in topics}
    )
    encoders = {t.name: Encoder(t, registered[t.name]) for t in topics}
    async with (
        key_source(settings) as keys,
        LogProducer.open(settings.kafka, encoders) as producer,
        open_readers(settings) as readers,
        RedisReplies(settings.redis.url.get_secret_value()) as replies,
        open_limiter(settings, producer, metrics) as limits,
        open_suggester(settings, metrics) as suggesting,
        Issuer(asking := Asking(producer, replies), settings.ids) as issuer,
        ClickLog(producer) as clicks,
        S3Objects.open(settings) as objects,
        open_chat(settings, readers["chat"], asking, registered[CHAT.name], metrics) as chats,
    ):
        own = {
            "ids-issuer": issuer,
            "ids-codes": Codes(settings.codes.secret.get_secret_value(), PUBLIC_CHARS, "ids"),
            **open_pastes(readers["pastes"], objects, asking, settings),
            "links-redirects": Redirects(readers["links"], asking, clicks),
        }
        info = {"version": _version(), "systems": list(catalog.SYSTEMS), "schema_ids": registered}
        yield Services(
            producer=CountedProducer(producer, metrics.api.events),
            verifier=Verifier(keys, settings.api.issuer, settings.api.audience),
            readers={**readers, **own, **suggesting, **chats, "limiter-rules": limits.book},
            limiter=limits,
            replies=replies,
            ready=health.remembered(lambda: _ready(settings, topics)),
            info=info,
        )


def open_pastes(
    table: PastesReader, objects: S3Objects, log: Asking, settings: Settings
) -> dict[str, Any]:
    """What makes, reads and shows pastes."""
    passwords = Passwords()
    return {
        "pastes-highlighter": Highlighter(),
        "pastes-making": Making(objects, passwords, settings.pastes.inline_bytes_max),
        "pastes-reading": Reading(table, objects, log, passwords),
    }


@asynccontextmanager
async def open_limiter(
    settings: Settings, producer: LogProducer, metrics: Metrics
) -> AsyncIterator[Limiter]:
    """The limiter with all rules that the log has. Its counters are connected at first use."""
    url = settings.limiter.url or settings.redis.url
    counters = Counters.connect(
        url.get_secret_value(),
        settings.limiter.timeout_ms / 1_000,
        cluster=settings.limiter.cluster,
    )
    async with AsyncExitStack() as opened:
        opened.push_async_callback(counters.close)
        schemas = opened.enter_context(closing(RegistrySource(settings.registry.url)))
        feed = await opened.enter_async_context(Feed(RULES, settings.kafka, schemas, Rulebook()))
        log = await opened.enter_async_context(DecisionLog(producer, metrics.limits.dropped))
        yield Limiter(feed.book, Leases(counters), log, settings.limiter, metrics.limits.decided)


@asynccontextmanager
async def open_readers(settings: Settings) -> AsyncIterator[dict[str, Any]]:
    """The readers of all systems, by the names their routes ask for. Each connects at its first
    read, so the API starts, and takes writes, without the stores.
    """
    async with AsyncExitStack() as opened:
        windows = AdsReader(open_redis_reader(WINDOWS, settings))
        opened.push_async_callback(windows.close)
        history = AdsHistory(open_clickhouse_reader(HISTORY, settings))
        opened.push_async_callback(history.close)
        boards = LeaderboardReader(open_redis_reader(BOARDS, settings))
        opened.push_async_callback(boards.close)
        books = open_cassandra_reader(PAYMENT_BOOKS, settings)
        opened.push_async_callback(books.close)
        trail = NotificationsReader(
            open_redis_reader(TRAIL, settings), open_redis_reader(DELIVERIES, settings)
        )
        opened.push_async_callback(trail.close)
        texts = TemplatesReader(open_redis_reader(TEMPLATES, settings))
        opened.push_async_callback(texts.close)
        hooks = WebhooksReader(open_cassandra_reader(WEBHOOKS, settings))
        opened.push_async_callback(hooks.close)
        decided = DecidedReader(open_redis_reader(DECIDED, settings))
        opened.push_async_callback(decided.close)
        logs = await opened.enter_async_context(open_telemetry(settings))
        promql = httpx.AsyncClient(base_url=settings.prometheus.url, timeout=QUERY_TIMEOUT_S)
        opened.push_async_callback(promql.aclose)
        intake = Intake.configured(settings.telemetry, logs["telemetry-metrics"])
        yield {
            "ads": windows,
            "ads-history": history,
            "ads-audit": AdsAudit(windows, history),
            "feed": await opened.enter_async_context(FeedReader.open(settings)),
            "chat": await opened.enter_async_context(ChatReader.open(settings)),
            "ids": await opened.enter_async_context(IdsReader.open(settings)),
            "leaderboard": boards,
            "limiter": decided,
            "links": await opened.enter_async_context(LinksReader.open(settings)),
            "links-clicks": await opened.enter_async_context(ClicksReader.open(settings)),
            "pastes": await opened.enter_async_context(PastesReader.open(settings)),
            "payments": PaymentReader(books),
            "payments-books": BookReader(books),
            "notifications": trail,
            "webhooks": hooks,
            "notifications-templates": texts,
            "telemetry-intake": intake,
            "telemetry-promql": promql,
            **logs,
        }


@asynccontextmanager
async def key_source(settings: Settings) -> AsyncIterator[Keys]:
    """Where tokens' keys come from: URL, else file, else the development issuer's file."""
    if settings.api.keys_url is None:
        yield KeyFile(settings.api.keys_file or home() / "keys" / "jwks.json")
        return
    async with httpx.AsyncClient(timeout=FETCH_TIMEOUT_S) as client:
        yield KeyUrl(settings.api.keys_url, client)


async def _ready(settings: Settings, topics: tuple[Topic, ...]) -> Readiness:
    def ask() -> str:
        try:
            known = kafka.admin(settings.kafka).list_topics(timeout=BROKER_TIMEOUT_S).topics
        except KafkaException as error:
            return f"no answer: {error.args[0].name()}"
        missing = [topic.name for topic in topics if topic.name not in known]
        return f"no topic {', '.join(missing)}" if missing else "ok"

    return {"kafka": await asyncio.to_thread(ask)}


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the problem schema that all errors refer to."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=described(app),
        )
        schemas = made["components"]["schemas"]
        document = problem.ProblemDocument.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        schemas.update(document.pop("$defs", {}))
        schemas["ProblemDocument"] = document
        app.openapi_schema = made
    return app.openapi_schema


def _version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "0+source"
