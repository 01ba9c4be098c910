"""Policies are derived from what the library does: nothing is missing from one, and nothing is in it in vain.

Every public operation is performed on a real table, what IAM would be asked is noted, and a small IAM of our own
answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest
from iam_evaluator import is_allowed, like
from public_operations import (
    ACQUIRING,
    EVERYTHING,
    MANAGING,
    MANAGING_ALL,
    OTHERS,
    READING,
    READING_ALL,
    World,
    asked_for_everything,
    take,
)
from recorded_calls import Question, questions_of

from engines.servers import Engine
from zae_limiter import SyncLease, SyncRateLimiter, SyncRepository
from zae_limiter.exceptions import ValidationError
from zae_limiter.infra.policies import LEVELS, NAMESPACE_TAG, TAGGED, Level, policy_document
from zae_limiter.stores.dynamodb.schema import (
    INDEXES,
    bucket_key,
    gsi1,
    gsi2_bucket,
    gsi2_usage,
    gsi3_bucket,
    gsi3_config,
    gsi4,
)

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/my-app"
WRITES = {
    f"dynamodb:{action}" for action in ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "ConditionCheckItem")
}
OTHER_NS = "somebodyelse1"


class Asked(NamedTuple):
    """What IAM was asked, by operation, and the id of the namespace it was about."""

    ns: str
    questions: Mapping[str, set[Question]]

    def of(self, operations: Mapping[str, object]) -> set[Question]:
        return {question for name in operations for question in self.questions[name]}


@pytest.fixture(scope="module")
def asked(dynoxide: Engine) -> Iterator[Asked]:
    table = "policies"
    url = f"dynamodb://{table}?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    with SyncRepository.open(url, create=True) as repository:
        world = World(dynoxide.endpoint_url, table)
        ns = world.prepare()
        yield Asked(ns, asked_for_everything(world))
        world.close()
        repository.delete_table()


WRITING = ("acquire", "lease", "lost answers", "resume", "lower", "write_pulse")
LOOKING = {name: perform for name, perform in ACQUIRING.items() if name not in WRITING}

PURPOSES: Mapping[tuple[Level, bool], Mapping[str, object]] = {
    ("acquire", False): ACQUIRING,
    ("acquire", True): ACQUIRING,
    ("read", False): {**LOOKING, **READING, **READING_ALL},
    ("read", True): {**LOOKING, **READING},
    ("full", False): EVERYTHING,
    ("full", True): {**ACQUIRING, **READING, **MANAGING},
}
"""What each policy is for, for the whole table and for one namespace."""

BOTH_WAYS = pytest.mark.parametrize(("level", "scoped"), list(PURPOSES))


def allows(document: Mapping[str, object], question: Question, **tags: str) -> bool:
    context: dict[str, set[str] | frozenset[str]] = {
        f"aws:PrincipalTag/{name.replace('_', '-')}": {value} for name, value in tags.items()
    }
    if question.keys:
        context["dynamodb:LeadingKeys"] = question.keys
    return is_allowed(document, question.action, question.arn(ARN), context)


def document_for(level: Level, scoped: bool, asked: Asked) -> dict[str, list[dict[str, object]]]:
    return policy_document(level, ARN, namespace_id=asked.ns if scoped else None)


# What is performed


def test_every_public_operation_is_performed() -> None:
    public = {
        name
        for kind in (SyncRateLimiter, SyncRepository)
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and callable(member)
    }
    ask_nobody = {"open", "close", "limit", "in_namespace", "get_cache_stats", "invalidate_config_cache"}
    not_of_data = {"delete_table"}
    assert public - ask_nobody - not_of_data == EVERYTHING.keys() - {"lease", "lost answers", "probe"}


def test_every_use_of_a_lease_is_performed() -> None:
    verbs = {name for name, member in inspect.getmembers(SyncLease) if not name.startswith("_") and callable(member)}
    text = inspect.getsource(inspect.unwrap(ACQUIRING["lease"]))
    assert {verb for verb in verbs if f"held.{verb}(" not in text} == set()


# Nothing is missing


@BOTH_WAYS
def test_a_policy_allows_what_it_is_for(level: Level, scoped: bool, asked: Asked) -> None:
    document = document_for(level, scoped, asked)
    refused = {
        (name, question)
        for name in PURPOSES[level, scoped]
        for question in asked.questions[name]
        if not allows(document, question)
    }
    assert refused == set(), "policies.py and cfn_template.yaml must allow this"


@pytest.mark.parametrize("scoped", [False, True])
def test_a_client_that_may_acquire_may_split_a_hot_bucket(scoped: bool, asked: Asked) -> None:
    document = document_for("acquire", scoped, asked)
    shards = [bucket_key(asked.ns, "key", "gpt", shard) for shard in (1, 3)]
    old, new = ({"PK": {"S": key.pk}, "SK": {"S": key.sk}} for key in shards)
    writes = [{"Update": {"Key": old}}, {"Put": {"Item": new}}]
    questions = list(questions_of("TransactWriteItems", {"TransactItems": writes}))
    assert [question.action for question in questions] == ["dynamodb:UpdateItem", "dynamodb:PutItem"]
    assert all(allows(document, question) for question in questions)


# Nothing is in vain


@BOTH_WAYS
def test_a_policy_has_nothing_that_is_not_asked_for(level: Level, scoped: bool, asked: Asked) -> None:
    questions = asked.of(PURPOSES[level, scoped])
    document = document_for(level, scoped, asked)
    for statement in document["Statement"]:
        alone = {**document, "Statement": [statement]}
        used = [question for question in questions if allows(alone, question)]
        assert {question.action for question in used} == set(statement["Action"])  # type: ignore[call-overload]
        arns = {question.arn(ARN) for question in used}
        for resource in statement["Resource"]:  # type: ignore[attr-defined]
            if resource.endswith("/index/*"):
                assert {f"{ARN}/index/{index}" for index in INDEXES} <= arns
            else:
                assert resource in arns
        for pattern in keys_of(statement):
            assert [key for question in used for key in question.keys if like(pattern, key)], pattern


def keys_of(statement: Mapping[str, object]) -> list[str]:
    conditions: dict[str, dict[str, list[str]]] = statement.get("Condition", {})  # type: ignore[assignment]
    return conditions.get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys", [])


@BOTH_WAYS
def test_only_what_names_keys_is_bound_by_keys(level: Level, scoped: bool, asked: Asked) -> None:
    """To IAM all of no keys match: a condition on keys says nothing about a request without any."""
    keyless = {question.action for question in asked.of(EVERYTHING) if not question.keys}
    for statement in document_for(level, scoped, asked)["Statement"]:
        if keys_of(statement):
            assert keyless.isdisjoint(statement["Action"])  # type: ignore[call-overload]
        elif scoped:
            assert set(statement["Action"]) == {"dynamodb:DescribeTable"}  # type: ignore[call-overload]


@pytest.mark.parametrize("scoped", [False, True])
def test_a_client_that_may_acquire_may_not_manage(scoped: bool, asked: Asked) -> None:
    document = document_for("acquire", scoped, asked)
    for name in [*MANAGING, *MANAGING_ALL, "list_entities", "get_audit_events", "list_namespaces"]:
        assert not all(allows(document, question) for question in asked.questions[name]), name


@pytest.mark.parametrize("scoped", [False, True])
def test_a_client_that_may_acquire_writes_buckets_leases_pulses_and_nothing_else(scoped: bool, asked: Asked) -> None:
    document = document_for("acquire", scoped, asked)
    written = {question for question in asked.of(EVERYTHING) if question.action in WRITES}
    allowed = {question for question in written if allows(document, question)}
    assert allowed
    kinds = {key.partition("/")[2].partition("#")[0] for question in allowed for key in question.keys}
    assert kinds == {"BUCKET", "LEASE", "PULSE"}
    assert {question.action for question in allowed} == {"dynamodb:PutItem", "dynamodb:UpdateItem"}


@pytest.mark.parametrize("scoped", [False, True])
def test_a_client_that_may_read_writes_nothing(scoped: bool, asked: Asked) -> None:
    document = document_for("read", scoped, asked)
    for question in asked.of(EVERYTHING):
        assert not (question.action in WRITES and allows(document, question)), question


# One namespace


def elsewhere(question: Question, asked: Asked) -> Question:
    return question._replace(keys=frozenset(key.replace(f"{asked.ns}/", f"{OTHER_NS}/") for key in question.keys))


@pytest.mark.parametrize("level", LEVELS)
def test_a_policy_for_a_namespace_reaches_no_other(level: Level, asked: Asked) -> None:
    document = document_for(level, True, asked)
    moved = {elsewhere(question, asked) for question in asked.of(EVERYTHING)}
    moved = {question for question in moved if any(key.startswith(f"{OTHER_NS}/") for key in question.keys)}
    assert len(moved) > 20
    assert {question for question in moved if allows(document, question)} == set()


@pytest.mark.parametrize("level", LEVELS)
def test_one_key_of_another_namespace_is_too_many(level: Level, asked: Asked) -> None:
    document = document_for(level, True, asked)
    own = {question for question in asked.of(ACQUIRING) if question.keys and allows(document, question)}
    assert own
    for question in own:
        stretched = question._replace(keys=question.keys | {f"{OTHER_NS}/BUCKET#key#gpt#0"})
        assert not allows(document, stretched)


ATTACKED: Mapping[str, Callable[[SyncRateLimiter], object]] = {
    "list_entities": lambda limiter: [entity.id for entity in limiter.list_entities().items],
    "get_children": lambda limiter: [entity.id for entity in limiter.get_children("org").items],
    "list_resources_with_defaults": lambda limiter: limiter.list_resources_with_defaults().items,
    "list_entities_with_custom_limits": lambda limiter: limiter.list_entities_with_custom_limits("gpt").items,
    "get_resource_capacity": lambda limiter: [
        row.entity_id for row in limiter.get_resource_capacity("gpt", limit_name="rpm").entities.items
    ],
    "get_status": lambda limiter: [bucket.resource for bucket in limiter.get_status("key").buckets],
    "get_usage_snapshots": lambda limiter: limiter.get_usage_snapshots(resource="gpt").items,
    "get_top_usage": lambda limiter: [used.name for used in limiter.get_top_usage()],
    "verify_usage": lambda limiter: limiter.verify_usage("key"),
    # Their order is that of what they have left, and they refill while the test goes on.
    "get_tightest_buckets": lambda limiter: sorted(bucket.entity_id for bucket in limiter.get_tightest_buckets()),
    "list_active_entities": lambda limiter: limiter.list_active_entities(),
    "get_audit_events": lambda limiter: len(limiter.get_audit_events(limit=1).items),
    "set_resource_defaults": lambda limiter: limiter.set_resource_defaults("gpt", OTHERS),
    "set_system_defaults": lambda limiter: limiter.set_system_defaults(OTHERS),
    "reset": lambda limiter: limiter.reset("key"),
    "delete_entity": lambda limiter: limiter.delete_entity("key"),
}


def test_a_client_that_may_acquire_in_one_namespace_leads_no_other_out_of_its_own(dynoxide: Engine) -> None:
    """IAM looks at the key of the table and not at those of its indexes: a bucket may be filed anywhere.

    What the attacker may write, by policy, is written; the operator of the other namespace then asks for nothing that
    the policy for that namespace does not allow, and is told nothing else than before.
    """
    table = "attacked"
    url = f"dynamodb://{table}?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    with SyncRepository.open(url, create=True) as repository:
        world = World(dynoxide.endpoint_url, table)
        ns = world.prepare()
        take(world.ground)
        untouched = {name: ATTACKED[name](world.newcomer()) for name in READING.keys() & ATTACKED.keys()}
        theirs = repository.register_namespace("attacker").id
        may_acquire = policy_document("acquire", ARN, namespace_id=theirs)
        for item in forged_items(theirs, ns):
            (question,) = questions_of("PutItem", {"Item": item})
            assert allows(may_acquire, question), "else it is no attack"
            world.transport.call("PutItem", {"TableName": table, "Item": item}, 20.0)
        may_all = policy_document("full", ARN, namespace_id=ns)
        for name, perform in ATTACKED.items():
            with world.recording.during(name):
                told = perform(world.newcomer())
            assert told == untouched.get(name, told), name
            assert [asked for asked in world.recording.asked[name] if not allows(may_all, asked)] == [], name
        world.close()
        repository.delete_table()


def forged_items(theirs: str, ns: str) -> Iterator[dict[str, dict[str, str]]]:
    """Buckets of one namespace with index keys of another."""
    filed = [
        gsi1(ns, "org", "forged"),
        gsi2_bucket(ns, "forged", "gpt", 0),
        gsi2_usage(ns, "gpt", "hourly", "2026-01-01T00", "forged", 0),
        gsi3_bucket(ns, "key", "forged", 0),
        gsi3_config(ns, "gpt", "forged"),
        *(gsi4(ns, f"{theirs}/BUCKET#{kind}", kind) for kind in ("BUCKET", "ENTITY#forged", "RESOURCE#forged")),
        gsi4(ns, f"{theirs}/BUCKET#audit", "AUDIT#7ZZZZZZZZZZZZZZZZZZZZZZZZZ"),
    ]
    for number, keys in enumerate(filed):
        for sk in ("#STATE", "#META", "#CONFIG"):
            item = {"PK": f"{theirs}/BUCKET#forged{number}#gpt#0", "SK": sk, **keys}
            yield {name: {"S": value} for name, value in item.items()}


@pytest.mark.parametrize("level", LEVELS)
def test_the_registry_is_read_by_key_and_neither_listed_nor_written(level: Level, asked: Asked) -> None:
    document = document_for(level, True, asked)
    registry = frozenset({"_/SYSTEM#"})
    assert allows(document, Question("dynamodb:GetItem", None, registry))
    for action in (*WRITES, "dynamodb:Query", "dynamodb:Scan", "dynamodb:DeleteTable"):
        assert not allows(document, Question(action, None, registry)), action
    for name in MANAGING_ALL:
        assert not all(allows(document, question) for question in asked.questions[name]), name


@pytest.mark.parametrize("level", ["acquire", "read"])
def test_not_even_for_the_whole_table_does_it_write_the_registry(level: Level, asked: Asked) -> None:
    document = document_for(level, False, asked)
    for action in WRITES:
        assert not allows(document, Question(action, None, frozenset({"_/SYSTEM#"}))), action


@pytest.mark.parametrize("level", LEVELS)
def test_a_tag_says_which_namespace_as_an_id_would(level: Level, asked: Asked) -> None:
    tagged = policy_document(level, ARN, namespace_id=TAGGED)
    written_out = document_for(level, True, asked)
    questions = asked.of(EVERYTHING)
    for question in questions | {elsewhere(question, asked) for question in questions}:
        assert allows(tagged, question, **{NAMESPACE_TAG: asked.ns}) == allows(written_out, question)


@pytest.mark.parametrize("level", LEVELS)
def test_without_the_tag_no_namespace_is_reached(level: Level, asked: Asked) -> None:
    tagged = policy_document(level, ARN, namespace_id=TAGGED)
    for question in asked.of(EVERYTHING):
        if any(key.startswith(f"{asked.ns}/") for key in question.keys) or question.action in WRITES:
            assert not allows(tagged, question), question


@pytest.mark.parametrize("level", LEVELS)
def test_a_tag_with_the_id_of_the_registry_gives_nothing_to_write(level: Level, asked: Asked) -> None:
    tagged = policy_document(level, ARN, namespace_id=TAGGED)
    for action in WRITES:
        for key in ("_/SYSTEM#", "_/BUCKET#key#gpt#0"):
            assert not allows(tagged, Question(action, None, frozenset({key})), **{NAMESPACE_TAG: "_"})


@pytest.mark.parametrize("wrong", ["", "_", "*", "a*", "a?", "a/b", "${aws:username}", "ä"])
def test_what_is_no_namespace_id_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match="id of a namespace"):
        policy_document("read", ARN, namespace_id=wrong)
