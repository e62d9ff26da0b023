"""A bidirectional LSTM tells nouns from verbs in sentences such as "the can can watch the fish".

"Bidirectional LSTM-CRF Models for Sequence Tagging", Huang, Xu and Yu, 2015 (arXiv:1508.01991), without the CRF.  A
small grammar makes the sentences.  Most of its words may be several parts of speech, and which one is meant is said by
what stands before *and* after, so a tagger that looks at one word at a time fails.

    python -m rushlight examples/lstm_tagging.py        with rushlight
    python examples/lstm_tagging.py                     with PyTorch: the same program, the same numbers
"""

import argparse
import random
from collections import Counter, defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

BOTH = ["can", "fish", "watch", "saw", "duck", "ship", "train", "hand"]  # nouns and verbs
WORDS = {
    "DET": ["the", "a", "this", "that"],
    "PRON": ["they", "you", "we", "that"],
    "ADJ": ["old", "green", "fast", "long"],
    "NOUN": [*BOTH, "man", "boat"],
    "VERB": [*BOTH, "like", "long"],
    "AUX": ["can", "will", "must"],
    "PREP": ["like", "with", "on"],
    "ADV": ["fast", "there"],
}
TAGS = list(WORDS)
VOCABULARY = sorted({word for words in WORDS.values() for word in words})
PADDING = -100  # the tag that cross_entropy leaves out


def sentence(rng):
    """Words and tags, by the grammar  S -> NP VP,  NP -> PRON | DET ADJ? NOUN,  VP -> AUX? VERB NP? ADV? PP?"""

    def maybe(p, *tags):
        return [*tags] if rng.random() < p else []

    def noun_phrase():
        return ["PRON"] if rng.random() < 0.3 else ["DET", *maybe(0.4, "ADJ"), "NOUN"]

    tags = [*noun_phrase(), *maybe(0.5, "AUX"), "VERB", *(noun_phrase() if rng.random() < 0.7 else [])]
    tags += maybe(0.3, "ADV") + (["PREP", "DET", "NOUN"] if rng.random() < 0.4 else [])
    return [rng.choice(WORDS[tag]) for tag in tags], tags


def batch(sentences, device="cpu"):
    """Numbers of words (B, T), lengths (B,) and numbers of tags (B, T), padded to the longest sentence; lengths stay on
    the host.
    """
    words = [torch.tensor([VOCABULARY.index(w) for w in words]) for words, _ in sentences]
    tags = [torch.tensor([TAGS.index(t) for t in tags]) for _, tags in sentences]
    lengths = torch.tensor([len(w) for w in words])
    words, tags = pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True, padding_value=PADDING)
    return words.to(device), lengths, tags.to(device)


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), width)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(2 * width, len(TAGS))

    def forward(self, words, lengths):  # (B, T), (B,)
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)  # (B, T, 2C)
        return self.head(self.dropout(states))  # (B, T, tags)


@torch.no_grad()
def accuracy(model, sentences):
    model.eval()
    words, lengths, tags = batch(sentences, model.head.weight.device)
    right = (model(words, lengths).argmax(2) == tags).sum() / (tags != PADDING).sum()
    model.train()
    return right.item()


def one_word_at_a_time(learn, test):
    """What a tagger reaches that gives every word the tag it has most often."""
    seen = defaultdict(Counter)
    for words, tags in learn:
        for word, tag in zip(words, tags):
            seen[word][tag] += 1
    pairs = [(word, tag) for words, tags in test for word, tag in zip(words, tags)]
    return sum(seen[word].most_common(1)[0][0] == tag for word, tag in pairs) / len(pairs)


def make_sentences(count, seed):
    rng = random.Random(seed)
    return [sentence(rng) for _ in range(count)]


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of all steps and the tagger."""
    torch.manual_seed(seed)
    learn = make_sentences(2000, seed)
    model = Tagger().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        picked = torch.randint(len(learn), (32,)).tolist()
        words, lengths, tags = batch([learn[i] for i in picked], device)
        loss = F.cross_entropy(model(words, lengths).flatten(0, 1), tags.flatten(), ignore_index=PADDING)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 19:
            log(f"step {step + 1}: loss {losses[-1]:.4f}")
    return losses, model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    losses, model = train(args.steps, args.seed, log=print, device=args.device)
    test = make_sentences(500, seed=args.seed + 1)
    alone, found = one_word_at_a_time(make_sentences(2000, args.seed), test), accuracy(model, test)
    words = "the old can can watch that fish".split()
    model.eval()
    tags = model(*batch([(words, ["DET"] * len(words))], args.device)[:2])[0].argmax(1).tolist()
    print(" ".join(f"{word}/{TAGS[tag]}" for word, tag in zip(words, tags)))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"{found:.2%} of the words of new sentences are tagged correctly; looking at one word at a time: {alone:.2%}")
    if found < 0.97:
        raise SystemExit(f"it should tag 97% correctly (after 120 steps, the default); it made {args.steps}")


if __name__ == "__main__":
    main()
