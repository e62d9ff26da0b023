"""A policy learns to balance a pole on a cart, from nothing but how long the pole stayed up.

"Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning", Williams, 1992 (REINFORCE),
with a learnt baseline.  The cart is that of "Neuronlike Adaptive Elements That Can Solve Difficult Learning Control
Problems", Barto, Sutton and Anderson, 1983; many carts are driven at once, as one tensor.

    python -m rushlight examples/policy_gradient.py     with rushlight
    python examples/policy_gradient.py                  with PyTorch: the same program, the same numbers
"""

import argparse
import math

import torch
import torch.nn as nn
from torch.distributions import Categorical

CARTS, LONGEST = 32, 200
GRAVITY, CART, POLE, HALF, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # kg, m, N, s


def push(state, action):
    """The next state of all carts (B, 4): place, speed, angle, turning speed; action 0 pushes left, 1 right."""
    place, speed, angle, turn = state.unbind(1)  # (B,) each
    force = FORCE * (2.0 * action - 1.0)
    sin, cos = angle.sin(), angle.cos()
    shove = (force + POLE * HALF * turn**2 * sin) / (CART + POLE)
    twist = (GRAVITY * sin - cos * shove) / (HALF * (4 / 3 - POLE * cos**2 / (CART + POLE)))
    pull = shove - POLE * HALF * twist * cos / (CART + POLE)
    return torch.stack((place + TICK * speed, speed + TICK * pull, angle + TICK * turn, turn + TICK * twist), dim=1)


def upright(state):
    """Which carts are still on the track with the pole less than 12 degrees off (B,)."""
    return (state[:, 0].abs() < 2.4) & (state[:, 2].abs() < math.radians(12))


@torch.no_grad()
def episode(policy, carts, device="cpu"):
    """Drive all carts until their poles have fallen: states (T, B, 4), actions (T, B), 1 where a pole was up (T, B)."""
    state = (torch.rand(carts, 4) * 0.1 - 0.05).to(device)
    up = torch.ones(carts, device=device)
    states, actions, alive = [], [], []
    for _ in range(LONGEST):
        action = Categorical(logits=policy(state)).sample()
        states.append(state)
        actions.append(action)
        alive.append(up)
        state = push(state, action)
        up = up * upright(state)
        if not up.any():
            break
    return torch.stack(states), torch.stack(actions), torch.stack(alive)


def returns_of(alive, discount=0.98):
    """From every moment on, the discounted sum of rewards (T, B); the reward is 1 for every moment upright."""
    later, rows = torch.zeros_like(alive[0]), []
    for reward in reversed(alive):
        later = reward + discount * later
        rows.append(later)
    return torch.stack(rows[::-1])


def network(outputs):
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, outputs))


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of all steps, the policy, and how long the poles stayed up in each step."""
    torch.manual_seed(seed)
    policy, baseline = network(2).to(device), network(1).to(device)
    optimizer = torch.optim.Adam([*policy.parameters(), *baseline.parameters()], lr=1e-2)
    losses, lengths = [], []
    for step in range(steps):
        states, actions, alive = episode(policy, CARTS, device)
        count = alive.sum()
        returns = returns_of(alive)
        expected = baseline(states).squeeze(2) * 10  # (T, B)
        surprise = returns - expected
        advantage = surprise.detach()
        mean, spread = (advantage * alive).sum() / count, ((advantage.square() * alive).sum() / count).sqrt()
        advantage = (advantage - mean) / spread
        chosen = Categorical(logits=policy(states))
        # What turned out better than expected is made more likely; some disorder is worth keeping.
        gain = (chosen.log_prob(actions) * advantage + 0.01 * chosen.entropy()) * alive
        loss = -gain.sum() / count + 0.01 * (surprise.square() * alive).sum() / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        lengths.append(count.item() / CARTS)
        if step % 10 == 9:
            log(f"step {step + 1}: loss {losses[-1]:.4f}, poles stayed up for {lengths[-1]:.1f} moments of {LONGEST}")
    return losses, policy, lengths


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    _, policy, lengths = train(args.steps, args.seed, log=print, device=args.device)
    reached = episode(policy, 100, args.device)[2].sum(0).mean().item()
    print(f"the first poles stayed up for {lengths[0]:.1f} moments, 100 new ones for {reached:.1f} of {LONGEST}")
    if reached < 180:
        raise SystemExit(f"it should be 180 (after 70 steps, the default); it made {args.steps}")


if __name__ == "__main__":
    main()
