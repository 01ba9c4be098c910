"""Under gevent's patched threads: greenlets share our transport, and those who wait let the others run."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from typing import Any

import pytest

from support.scripted_server import Heard, reply, serving

pytestmark = [
    pytest.mark.usefixtures("no_credentials_here"),
    pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed"),
]

GREENLETS = """
from gevent import monkey
monkey.patch_all()

import json, sys, time
import gevent
from zae_limiter.stores.dynamodb.transport.protocol import Target, transports_for

transport = transports_for(Target("us-east-1", sys.argv[1])).sync()
answers = []
beats = 0


def call():
    for _ in range(5):
        answers.append(transport.call("GetItem", {}, 20))


def beat():
    global beats
    while True:
        time.sleep(0.001)
        beats += 1


beating = gevent.spawn(beat)
gevent.joinall([gevent.spawn(call) for _ in range(10)], raise_error=True)
beating.kill()
transport.close()
print(json.dumps([len(answers), beats]))
"""


def test_greenlets_go_on_while_others_wait_for_an_answer() -> None:
    def slowly(heard: Heard, connection: Any) -> bytes:
        time.sleep(0.05)
        return reply({})

    with serving(slowly) as server:
        command = [sys.executable, "-W", "error", "-c", GREENLETS, server.url]
        finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    answers, beats = json.loads(finished.stdout)
    assert answers == 50
    assert beats > 20
    assert len(server.connections) == 10
