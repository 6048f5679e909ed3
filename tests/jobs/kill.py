#!/usr/bin/env python3
"""A job that is killed again and again gives the same bytes and computes nothing twice that was finished."""
import random
import signal
import time

from support import Workspace, main, mixed_requests, record_id, say, send

REQUESTS = 1500
KILLS = 30
TERMINATIONS = 10
MOST_STOP_SECONDS = 3
MOST_DELAY_SECONDS = 0.02  # after the record that a kill waits for: it falls anywhere between two records


class Kill(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = mixed_requests(REQUESTS, longest_words=60, longest_answer=200, seed=3)
        lines[17:17] = [b'{"id": "bad", "prompt": 5}']
        cls.source = cls.write_lines("mixed.jsonl", lines)
        cls.total = len(lines)

    def setUp(self):
        if hasattr(type(self), "baseline"):
            return
        began = time.monotonic()
        self.nightjar(*self.words("baseline"), code=1)
        type(self).baseline = self.export("baseline")
        type(self).baseline_run = self.runs("baseline")[-1]
        say(f"uninterrupted: {time.monotonic() - began:.1f} s, {self.baseline_run['decode_tokens']} new tokens")

    def words(self, name):
        # One thread and a small budget: many short sweeps, so that there are many moments to be killed at.
        return self.job(name, self.source, "--quiet", "--threads", 1, "--token-budget", 16)

    def next_run(self, name, number):
        """Every second time by the same command line, else by `resume`."""
        return self.start(*(self.words(name) if number % 2 == 0 else ("resume", self.path(name), "--quiet")))

    def check_end(self, name):
        self.nightjar(*self.words(name), code=1)
        self.assert_same_export(self.export(name), self.baseline, name)
        records = self.records(name) + self.records(name, "errors.jsonl")
        self.assertEqual(len(records), self.total, "a finished request was computed again")
        self.assertEqual(len({record_id(record) for record in records}), self.total)
        self.assertEqual({record["attempt"] for record in records}, {1})

    def test_killed_uniformly_over_the_job(self):
        generator = random.Random(11)
        done = 0
        for number in range(KILLS):
            process = self.next_run("killed", number)
            self.wait_for_records(process, "killed", (number + 1) * self.total // (KILLS + 4))
            time.sleep(generator.uniform(0, MOST_DELAY_SECONDS))
            process.kill()
            process.wait()
            self.assertEqual(process.returncode, -signal.SIGKILL, f"the job ended before kill {number + 1}")
            now = self.record_count("killed")
            self.assertGreaterEqual(now, done, "records were lost")
            done = now
        say(f"{KILLS} kills by SIGKILL; {done} of {self.total} requests had a record after the last")
        self.check_end("killed")

    def test_killed_while_starting(self):
        for number in range(10):
            process = self.next_run("early", 0)
            time.sleep(0.02 * number)
            process.kill()
            process.wait()
        self.check_end("early")

    def test_terminated_while_starting(self):
        codes = []
        for number in range(10):
            process = self.next_run("early-end", 0)
            time.sleep(0.01 * number)
            send(process, signal.SIGTERM, MOST_STOP_SECONDS)
            codes.append(process.returncode)
            self.assertIn(process.returncode, (75, -signal.SIGTERM))  # the latter: before main
        say(f"terminated while starting: {codes}")
        self.assertIn(75, codes)
        self.check_end("early-end")

    def test_terminated(self):
        generator = random.Random(12)
        signals = [signal.SIGTERM] * TERMINATIONS + [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
        generator.shuffle(signals)
        slowest = 0
        for number, which in enumerate(signals, 1):
            process = self.next_run("terminated", number - 1)
            self.wait_for_records(process, "terminated", number * self.total // (len(signals) + 3))
            time.sleep(generator.uniform(0, MOST_DELAY_SECONDS))
            seconds = send(process, which, 30)
            slowest = max(slowest, seconds)
            self.assertEqual(process.returncode, 75, f"{which.name} number {number}")
            self.assertLess(seconds, MOST_STOP_SECONDS)
        self.check_end("terminated")
        runs = self.runs("terminated")
        tokens = sum(run["decode_tokens"] for run in runs)
        say(f"{len(signals)} signals, slowest end {slowest:.2f} s, {tokens} new tokens in {len(runs)} runs")
        self.assertEqual(len(runs), len(signals) + 1)
        self.assertEqual(tokens, self.baseline_run["decode_tokens"], "tokens were computed twice, or not counted")

    def test_second_signal_ends_at_once(self):
        process = self.start(*self.words("twice"))
        self.wait_for_output(process, "twice")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 75)
        self.check_end("twice")

    def test_a_signal_and_its_echo_are_one(self):
        """As `timeout nightjar run ...` sends them."""
        process = self.start(*self.words("echo"))
        self.wait_for_output(process, "echo")
        for _ in range(5):  # two at the same moment may arrive as one
            process.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 75)
        self.assertEqual([run["exit_code"] for run in self.runs("echo")], [75])
        self.check_end("echo")
        tokens = sum(run["decode_tokens"] for run in self.runs("echo"))
        self.assertEqual(tokens, self.baseline_run["decode_tokens"], "tokens were computed twice")

    def test_nohup_keeps_hangup_ignored(self):
        process = self.start(*self.words("nohup"), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_for_output(process, "nohup")
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1)
        self.assert_same_export(self.export("nohup"), self.baseline, "nohup")


if __name__ == "__main__":
    main()
