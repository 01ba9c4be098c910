"""What is typed, in order, and which document each command answers with.

Every story is played on every store, for people at two widths and for programs. A line that begins with ``+`` lets
so many seconds pass; ``?`` before a command means that it ends with an error, which the transcript shows. After
``=>`` stands the document that ``--json`` brings (``schemas/documents.json``).
"""

from __future__ import annotations

import shlex
from typing import NamedTuple


class Step(NamedTuple):
    """A command, or time that passes before one."""

    words: tuple[str, ...]
    document: str | None
    fails: bool
    seconds: float


STORIES = {
    "entities": """
        entity list                                                     => entity_list
        entity tree                                                     => entity_tree
        entity create acme --name 'Acme Inc.' --meta plan=gold --meta 'note=a = b' => entity
        entity create search --parent acme --cascade --name Search      => entity
        entity create ads --parent acme                                 => entity
        + 90
        entity create key-1 --parent search --cascade                   => entity
        entity create key-2 --parent search --no-cascade                => entity
        ? entity create key-2
        ? entity create 'no#signs'
        ? entity create key-3 --parent nobody
        ? entity create key-3 --meta broken
        entity show key-1                                               => entity_shown
        ? entity show nobody
        entity set-limits acme -l rpm:1_000 -l tpm:50_000/hour:80_000   => entity_limits
        entity show acme                                                => entity_shown
        entity update acme --meta plan=silver --remove-meta note        => entity
        entity update acme --no-name --expected-version 2               => entity
        ? entity update acme --name x --expected-version 2
        ? entity update acme
        ? entity update acme --name x --no-name
        ? entity update acme --parent key-1
        entity update key-2 --parent ads --cascade                      => entity
        entity update key-1 --no-parent --no-cascade                    => entity
        entity list                                                     => entity_list
        entity list --limit 2                                           => entity_list
        entity tree                                                     => entity_tree
        entity tree ads                                                 => entity_tree
        ? entity tree nobody
        ? entity delete key-2
        ? entity delete acme --yes
        entity delete key-2 --yes                                       => entity_deleted
        ? entity delete key-2 --yes
        entity list                                                     => entity_list
    """,
    "limits": """
        system get-defaults                                             => system_limits
        ? acquire key-1 gpt-4 rpm=1
        explain key-1 gpt-4                                             => explanation
        system set-defaults -l rpm:100 -l tpm:10_000/min:15_000         => system_limits
        system set-defaults -l rpm:100 -l tpm:10_000/min:15_000 --on-unavailable allow => system_limits
        system get-defaults                                             => system_limits
        ? system set-defaults
        ? system set-defaults -l rpm
        ? system set-defaults -l rpm:many
        ? system set-defaults -l rpm:1/fortnight
        ? system set-defaults -l rpm:1.5
        ? system set-defaults -l rpm:1 -l rpm:2
        ? system set-defaults -l wcu:1
        resource list                                                   => resource_list
        resource get-defaults gpt-4                                     => resource_limits
        resource set-defaults gpt-4 -l rpm:60 -l tpm:20_000             => resource_limits
        resource set-defaults embeddings/small -l tpd:1M/w              => resource_limits
        resource list                                                   => resource_list
        resource list --limit 1                                         => resource_list
        entity create acme                                              => entity
        entity create search --parent acme --cascade                    => entity
        entity create key-1 --parent search --cascade                   => entity
        entity get-limits key-1                                         => entity_limits
        entity set-limits key-1 -l rpm:10/s:5                           => entity_limits
        entity set-limits key-1 --resource gpt-4 -l tpm:5_000/90sec --merge => entity_limits
        entity set-limits key-1 --resource gpt-4 -l tpm:5_000/90sec     => entity_limits
        entity set-limits key-1 -r '*' -l usd:50/day                    => entity_limits
        entity get-limits key-1 --resource gpt-4                        => entity_limits
        entity list --with-limits                                       => entity_limits_list
        entity list --with-limits --resource gpt-4                      => entity_limits_list
        entity list --with-limits --resource other                      => entity_limits_list
        ? entity list --resource gpt-4
        explain key-1 gpt-4                                             => explanation
        explain key-1 embeddings/small                                  => explanation
        explain search gpt-4                                            => explanation
        entity update search --no-cascade                               => entity
        explain key-1 gpt-4                                             => explanation
        ? entity delete-limits key-1
        entity delete-limits key-1 --yes                                => entity_limits
        entity delete-limits key-1 --resource gpt-4 --yes               => entity_limits
        resource delete-defaults gpt-4 --yes                            => resource_limits
        resource delete-defaults embeddings/small --yes --no-propagate  => resource_limits
        system delete-defaults --yes                                    => system_limits
        resource list                                                   => resource_list
        explain key-1 gpt-4                                             => explanation
    """,
    "access": """
        system set-defaults -l rpm:60                                   => system_limits
        entity create acme                                              => entity
        entity create key-1 --parent acme --cascade                     => entity
        acquire key-1 gpt-4 rpm=1                                       => acquired
        block --list                                                    => access_list
        block key-1 --principal ann                                     => access
        ? acquire key-1 gpt-4 rpm=1
        status key-1                                                    => status
        explain key-1 gpt-4                                             => explanation
        block acme --resource gpt-4 --until 2h                          => access
        block --list                                                    => access_list
        unblock key-1                                                   => unblocked
        ? acquire key-1 gpt-4 rpm=1
        unblock acme --resource gpt-4                                   => unblocked
        acquire key-1 gpt-4 rpm=1                                       => acquired
        block key-1 --observe                                           => access
        acquire key-1 gpt-4 rpm=61                                      => acquired
        unblock key-1                                                   => unblocked
        ? block
        ? block --all
        ? block key-1 --all
        ? block key-1 --until yesterday
        ? block key-1 --until 2001-01-01
        block --all --until 1d --yes                                    => access
        ? acquire key-1 gpt-4 rpm=1
        unblock --all                                                   => unblocked
        audit list --subject key-1                                      => event_list
    """,
    "buckets": """
        system set-defaults -l rpm:60 -l tpm:6_000/min:9_000            => system_limits
        status key-1                                                    => status
        resource capacity gpt-4                                         => capacity
        acquire key-1 gpt-4 rpm=10 tpm=500                              => acquired
        entity create acme                                              => entity
        entity create key-2 --parent acme --cascade                     => entity
        acquire key-2 gpt-4 rpm=30 tpm=8k                               => acquired
        acquire key-2 other/model rpm=1 -l rpm:5/hour                   => acquired
        ? acquire key-2 gpt-4 rpm=1 tpm=2_000                           => acquired
        ? acquire key-2 gpt-4 rpm=61                                    => acquired
        ? acquire key-2 gpt-4 rpm=1 nope=1
        ? acquire key-2 gpt-4 rpm=x
        ? acquire key-2 gpt-4 rpm=1.5
        ? acquire key-2 gpt-4 rpm=1 rpm=2
        ? acquire key-2 gpt-4
        ? acquire key-2 gpt-4 rpm=1 --
        + 6
        available key-2 gpt-4                                           => available
        available key-2 gpt-4 rpm=1                                     => available
        ? available key-2 gpt-4 tpm=2_000                               => available
        ? available key-2 gpt-4 tpm=9_001                               => available
        acquire key-2 gpt-4 tpm=2_000 --timeout 30                      => acquired
        acquire key-2 gpt-4 rpm=1 -- true
        ? acquire key-2 gpt-4 rpm=1 -- false
        ? acquire key-2 gpt-4 rpm=1 -- no-such-program
        + 3
        acquire key-2 gpt-4 tpm=1 -- sh -c 'echo tpm=700 > "$ZAEL_SETTLE"'
        ? acquire key-2 gpt-4 rpm=1 -- true                             => acquired
        status key-2                                                    => status
        status key-2 gpt-4                                              => status
        status acme                                                     => status
        + 3
        top                                                             => tightest
        top --resource gpt-4 --limit 2                                  => tightest
        top --resource nothing                                          => tightest
        watch --count 1                                                 => look
        watch key-2 nobody --count 1                                    => look
        watch key-2 --resource gpt-4 --count 2 --interval 0.05          => look
        resource capacity gpt-4                                         => capacity
        resource capacity gpt-4 tpm --limit 1                           => capacity
        ? lower key-2 gpt-4
        ? lower key-2 gpt-4 rps=1
        lower key-2 gpt-4 tpm=1_500 --principal bea                      => lowered
        lower key-2 gpt-4 tpm=9_000 rpm=0                                => lowered
        ? reset key-2
        reset key-2 --resource gpt-4 --yes                              => reset
        status key-2 gpt-4                                              => status
        reset key-2 --yes --principal bea                               => reset
        reset key-2 --limit tpm --key night --yes                       => reset
        reset nobody --yes                                              => reset
        acquire key-1 gpt-4 tpm=100 --request-id req-1 --detach         => acquired
        acquire key-1 gpt-4 tpm=100 --request-id req-1 --detach         => acquired
        ? acquire key-1 gpt-4 tpm=101 --request-id req-1
        ? acquire key-1 gpt-4 tpm=1 --detach -- true
        acquire key-1 gpt-4 tpm=50 --request-id req-2                   => acquired
        lease list                                                      => lease_list
        lease list --entity key-1 --limit 1                             => lease_list
        lease list --entity nobody                                      => lease_list
        lease show zl1.req-1                                            => lease
        ? lease show zl1.nothing
        ? lease show nothing
        lease settle zl1.req-1 tpm=40                                   => lease
        lease settle zl1.req-1 tpm=90                                   => lease
        lease release zl1.req-2                                         => lease
        grant key-1 gpt-4 tpm=10 --key invoice-1                        => credited
        grant key-1 gpt-4 tpm=10 --key invoice-1                        => credited
        ? grant key-1 gpt-4 tpm=11 --key invoice-1
        ? grant key-1 gpt-4 tpm=10
        ? grant key-1 gpt-4 tpm=10 --key invoice-2 --above
        entity set-limits acme -l usd:500/month@UTC                     => entity_limits
        grant acme gpt-4 usd=50 --key invoice-3 --above                 => credited
        status acme                                                     => status
        acquire acme gpt-4 usd=520                                      => acquired
    """,
    "reports": """
        ? usage list
        ? usage summary
        ? usage plot
        usage list --entity key-1                                       => snapshot_list
        usage summary --entity key-1                                    => usage_summary
        usage plot --entity key-1                                       => usage_series
        system set-defaults -l rpm:600 -l tpm:60_000                    => system_limits
        acquire key-1 gpt-4 rpm=2 tpm=1_200                             => acquired
        acquire key-2 gpt-4 rpm=1 tpm=300                               => acquired
        + 3600
        acquire key-1 gpt-4 rpm=7 tpm=40_000                            => acquired
        + 7200
        acquire key-1 gpt-4 rpm=3 tpm=9_000                             => acquired
        acquire key-1 other rpm=1                                       => acquired
        + 72000
        acquire key-1 gpt-4 rpm=5 tpm=25_500                            => acquired
        + 60
        usage list --entity key-1                                       => snapshot_list
        usage list --entity key-1 --resource gpt-4 --window hourly --since 30h --until 2hours => snapshot_list
        usage list --resource gpt-4 --window monthly                    => snapshot_list
        usage list --resource gpt-4 --limit 2                           => snapshot_list
        ? usage list --entity key-1 --since yesterday
        ? usage list --entity key-1 --window weekly
        usage summary --resource gpt-4                                  => usage_summary
        usage summary --all                                             => usage_summary
        ? usage summary --all --resource gpt-4
        usage top                                                       => usage_top
        usage top --by resource --limit-name tpm --window daily         => usage_top
        usage summary --entity key-1 --window daily --until 2026-01-01T12:00 => usage_summary
        usage plot --entity key-1 --resource gpt-4                      => usage_series
        usage plot --entity key-1 --limit-name tpm --style lines        => usage_series
        usage plot --resource gpt-4 --window daily --height 4           => usage_series
        usage plot --resource gpt-4 --limit-name nope                   => usage_series
        entity create key-1 --name 'Key one'                            => entity
        entity set-limits key-1 -l rpm:10 --principal bea               => entity_limits
        resource set-defaults gpt-4 -l rpm:20                           => resource_limits
        audit list                                                      => event_list
        audit list --limit 1                                            => event_list
        audit list --subject key-1                                      => event_list
        audit list --subject '$SYSTEM'                                  => event_list
        audit list --subject '$RESOURCE:gpt-4' --since 1hour            => event_list
        audit list --until 2026-01-01                                   => event_list
        ? audit list --subject '#'
        audit show 01KDVDNA00                                           => event_list
        ? audit show 01KDVDNA01
        + 5
        resource set-defaults gpt-4 -l rpm:30                           => resource_limits
        audit show 01KDXWP4V8                                           => event_list
        ? audit show nonsense
    """,
    "namespaces": """
        namespace list                                                  => namespace_list
        ? entity list --namespace staging
        namespace register staging                                      => namespace
        namespace register staging                                      => namespace
        system set-defaults -l rpm:5 --namespace staging                => system_limits
        entity create key-1 --namespace staging                         => entity
        acquire key-1 gpt-4 rpm=3 --namespace staging                   => acquired
        system get-defaults                                             => system_limits
        entity list                                                     => entity_list
        status key-1                                                    => status
        usage list --entity key-1                                       => snapshot_list
        namespace show staging                                          => namespace
        namespace list --limit 1                                        => namespace_list
        ? namespace show nope
        ? namespace purge staging --yes
        ? namespace delete staging
        + 10
        namespace delete staging --yes                                  => namespace_deleted
        ? namespace delete staging --yes
        ? status key-1 --namespace staging
        namespace list                                                  => namespace_list
        + 10
        namespace recover staging                                       => namespace
        available key-1 gpt-4 --namespace staging                       => available
        namespace delete staging --yes                                  => namespace_deleted
        ? namespace delete default --yes
        ? namespace delete default --confirm staging
        namespace delete default --confirm default                      => namespace_deleted
        ? entity list
        namespace recover default                                       => namespace
        ? namespace purge staging
        namespace purge staging --yes                                   => namespace_purged
        ? namespace show staging
        ? namespace recover staging
        namespace list                                                  => namespace_list
    """,
}


def steps_of(story: str) -> list[Step]:
    """A story, step by step."""
    steps = []
    seconds = 0.0
    for line in STORIES[story].strip().splitlines():
        command, _, document = line.strip().partition("=>")
        if command.startswith("+"):
            seconds += float(command[1:])
            continue
        fails = command.startswith("?")
        words = tuple(shlex.split(command.removeprefix("?")))
        steps.append(Step(words, document.strip() or None, fails, seconds))
        seconds = 0.0
    return steps
