"""Random requests of Envoy against a model: everything or nothing, settled once, and nothing minted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.service.envoy.descriptors import Descriptor
from zae_limiter.service.envoy.rate_limit_service import RateLimitService
from zae_limiter.service.envoy.responses import OK, OVER_LIMIT
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing import FakeClock

BURSTS = {"requests": 5, "tpm": 100}
ENTITIES = ("a", "b")
LIMITS = [Limit.per_day(name, burst) for name, burst in BURSTS.items()]

asks = st.lists(
    st.tuples(st.sampled_from(ENTITIES), st.sampled_from(list(BURSTS)), st.sampled_from([None, 0, 1, 2, 30, 101])),
    min_size=1,
    max_size=4,
)
settlements = st.tuples(st.integers(0, 5), st.integers(0, 250))
programs = st.lists(st.one_of(asks, settlements), max_size=12)


class Model:
    """What is left of each limit, and which estimates are open."""

    def __init__(self) -> None:
        self.left = {(entity, limit): burst for entity in ENTITIES for limit, burst in BURSTS.items()}

    def takes(self, ask: list[tuple[str, str, int | None]]) -> bool:
        """Whether a request is let through; then it has taken."""
        wanted: dict[tuple[str, str], int] = {}
        for entity, limit, hits in ask:
            wanted[entity, limit] = wanted.get((entity, limit), 0) + (1 if hits is None else hits)
        # A debt of any limit refuses everything; a limit that is only looked at must have a token.
        in_debt = any(self.left[entity, limit] < 0 for entity, _ in wanted for limit in BURSTS)
        if in_debt or any(self.left[place] < max(amount, 1) for place, amount in wanted.items()):
            return False
        for place, amount in wanted.items():
            self.left[place] -= amount
        return True


@given(program=programs)
@settings(max_examples=120)
def test_what_is_left_is_what_the_model_says(program: list[object]) -> None:
    repository = SyncRepository(MemoryStore(), clock=FakeClock())
    limiter = SyncRateLimiter(repository)
    limiter.set_system_defaults(LIMITS)
    service, model = RateLimitService(repository), Model()
    leases: list[tuple[str, list[tuple[str, int]], bool]] = []
    for step in program:
        if isinstance(step, tuple):
            if not leases:
                continue
            number, used = step[0] % len(leases), step[1]
            token, estimates, is_settled = leases[number]
            service.answer("default", [Descriptor({"lease": token, "limit": "tpm"}, used)])
            if not is_settled:
                for entity, estimate in estimates:
                    model.left[entity, "tpm"] += estimate - used
            leases[number] = (token, estimates, True)
        else:
            assert isinstance(step, list)
            descriptors = [Descriptor({"entity": e, "resource": "chat", "limit": n}, hits) for e, n, hits in step]
            response = service.answer("default", descriptors)
            assert (response.code == OK) is model.takes(step)
            assert len(response.statuses) == len(step)
            assert any(status.code == OVER_LIMIT for status in response.statuses) is (response.code == OVER_LIMIT)
            for _, token in response.request_headers:
                # Entities whose tokens were estimated, in the order of their leases; all of their hits are settled.
                estimated = dict.fromkeys(entity for entity, name, hits in step if name == "tpm" and hits)
                amounts = [
                    (entity, sum(1 if hits is None else hits for e, n, hits in step if (e, n) == (entity, "tpm")))
                    for entity in estimated
                ]
                assert len(token.split(",")) == len(amounts)
                leases.append((token, amounts, False))
        for (entity, name), left in model.left.items():
            assert limiter.available(entity, "chat")[name] == left


def test_threads_that_give_back_lose_and_mint_nothing() -> None:
    repository = SyncRepository(MemoryStore(), clock=FakeClock())
    limiter = SyncRateLimiter(repository)
    limiter.set_resource_defaults("chat", [Limit.per_day("requests", 100)])
    limiter.set_limits("shared", [Limit.per_day("requests", 40)])
    service = RateLimitService(repository)
    pair = [Descriptor({"entity": name, "resource": "chat"}) for name in ("key", "shared")]
    with ThreadPoolExecutor(8) as threads:
        codes = list(threads.map(lambda _: service.answer("default", pair).code, range(400)))
    granted = codes.count(OK)
    assert granted == 40
    assert limiter.available("key", "chat") == {"requests": 60}
    assert limiter.available("shared", "chat") == {"requests": 0}
