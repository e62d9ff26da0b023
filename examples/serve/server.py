"""Serves the packages that `model.py` wrote.  No compiler is loaded: packages, NumPy, FastAPI.

    python examples/serve/server.py served --port 8000

    POST /generate  {"prompt": "text", "max_tokens": 32, "temperature": 0.0, "stream": true}    one line of JSON for each token
    POST /classify  {"image": [[...], ...]}                                                     8 x 8 numbers
    GET /health, /metrics

It stops on SIGTERM: what was taken is finished, everything else is answered by 503.
"""

import argparse
import asyncio
import json
import os
from contextlib import asynccontextmanager

import numpy as np
import uvicorn
from batching import Batcher
from fastapi import FastAPI, HTTPException
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, Field

from engine import Sequence, engine_of
from rushlight_loader import load


class Prompt(BaseModel):
    prompt: str = Field(min_length=1)
    max_tokens: int = Field(32, ge=1)
    temperature: float = Field(0.0, ge=0)
    seed: int | None = None
    stream: bool = True


class Image(BaseModel):
    image: list[list[float]]


def application(folder, pages=None):
    """The service over a folder of packages."""

    @asynccontextmanager
    async def lifespan(app):
        app.state.engine = engine_of(folder, load, pages)
        app.state.batcher = Batcher(load(os.path.join(folder, "classify.rlp")))
        app.state.ready = True
        yield
        app.state.ready = False
        await asyncio.to_thread(app.state.engine.stop)
        await asyncio.to_thread(app.state.batcher.stop)

    app = FastAPI(title="rushlight", lifespan=lifespan)

    @app.get("/health")
    async def health():
        engine = app.state.engine
        if not app.state.ready or engine.stopping or not engine.thread.is_alive():
            raise HTTPException(503, "stopping")
        return {"status": "ok", "running": len(engine.running), "waiting": len(engine.waiting)}

    @app.get("/metrics")
    async def metrics():
        batcher = app.state.batcher
        found = {**app.state.engine.metrics(), "classified": batcher.items, "classify_calls": batcher.calls}
        return PlainTextResponse("".join(f"rushlight_{name} {value}\n" for name, value in found.items()))

    @app.post("/generate")
    async def generate(request: Prompt):
        engine, loop, tokens = app.state.engine, asyncio.get_running_loop(), asyncio.Queue()
        sequence = Sequence(
            request.prompt.encode(),
            request.max_tokens,
            lambda token: loop.call_soon_threadsafe(tokens.put_nowait, token),
            request.temperature,
            request.seed,
        )
        try:
            engine.submit(sequence)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except RuntimeError as error:
            raise HTTPException(503, str(error)) from None

        async def lines():
            count = 0
            try:
                while (token := await tokens.get()) is not None:
                    count += 1
                    yield json.dumps({"token": token, "text": bytes([token]).decode("latin-1")}) + "\n"
                yield json.dumps({"done": True, "tokens": count, "complete": sequence.left == 0}) + "\n"
            finally:  # the reader may have gone
                if sequence.left:
                    engine.cancel(sequence)

        if request.stream:
            return StreamingResponse(lines(), media_type="application/x-ndjson")
        found = [json.loads(line) async for line in lines()]
        return {
            "text": "".join(each["text"] for each in found[:-1]),
            "tokens": [each["token"] for each in found[:-1]],
            "complete": found[-1]["complete"],
        }

    @app.post("/classify")
    async def classify(request: Image):
        image = np.asarray(request.image, np.float32) if len({len(row) for row in request.image}) == 1 else np.zeros(0)
        if image.shape != (8, 8):
            raise HTTPException(422, "an image has 8 rows of 8 numbers")
        scores = await asyncio.wrap_future(app.state.batcher.submit(image[None]))
        return {"class": int(scores.argmax()), "scores": [float(s) for s in scores]}

    return app


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--pages", type=int, help="pages of the cache (default: enough for all slots)")
    options = parser.parse_args()
    uvicorn.run(
        application(options.folder, options.pages),
        host=options.host,
        port=options.port,
        log_level="warning",
        timeout_graceful_shutdown=30,
    )


if __name__ == "__main__":
    main()
