"""Clients of a running server: tokens a second of one client after another, and of many at one time.

python examples/serve/load_test.py --port 8000 --clients 16
"""

import argparse
import asyncio
import json
import statistics
import time

import httpx


async def client(session, prompt, count, waits):
    """Generate from one prompt; the tokens.  `waits` gets the seconds until the first one."""
    began, tokens = time.perf_counter(), []
    async with session.stream("POST", "/generate", json={"prompt": prompt, "max_tokens": count}) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            found = json.loads(line)
            if "token" in found:
                if not tokens:
                    waits.append(time.perf_counter() - began)
                tokens.append(found["token"])
    return tokens


async def run(url, clients, count):
    """(tokens a second one by one, with all clients, medians of waits for the first token, whether the tokens are the same)."""
    prompts = [f"request {k} asks for a few words" for k in range(clients)]
    async with httpx.AsyncClient(base_url=url, timeout=300) as session:
        await client(session, "warm up", 4, [])
        rates, waits, answers = [], [], []
        for together in (False, True):
            found = []
            began = time.perf_counter()
            calls = [client(session, prompt, count, found) for prompt in prompts]
            answers.append(await asyncio.gather(*calls) if together else [await call for call in calls])
            rates.append(clients * count / (time.perf_counter() - began))
            waits.append(statistics.median(found))
        return rates, waits, answers[0] == answers[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    (alone, together), waits, same = asyncio.run(
        run(f"http://{options.host}:{options.port}", options.clients, options.tokens)
    )
    print(f"one by one: {alone:7.1f} tokens/s, first token after {1e3 * waits[0]:.1f} ms")
    print(f"{options.clients:3} clients: {together:7.1f} tokens/s, first token after {1e3 * waits[1]:.1f} ms")
    print(f"{together / alone:.2f} times the tokens; {'the same' if same else 'OTHER'} tokens")


if __name__ == "__main__":
    main()
