"""Transformers and what belongs to them: transformers, peft, x-transformers, vector-quantize-pytorch."""

from __future__ import annotations

from pathlib import Path

from tests.packages.environment import needs


def _trained(model, ids, steps: int = 4) -> list[float]:
    import torch

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@needs("transformers")
def test_gpt2(same, tmp_path: Path) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=99)
    model = GPT2LMHeadModel(config)
    ids = torch.arange(40).reshape(2, 20) % 90
    same("losses", _trained(model, ids))
    model.eval()
    with torch.no_grad():
        same("logits", model(ids).logits[:, -1, :5])
        asked = {"attention_mask": torch.ones(2, 5, dtype=torch.long), "pad_token_id": 0, "max_new_tokens": 8}
        same("greedy", model.generate(ids[:, :5], do_sample=False, **asked))
        same("beams", model.generate(ids[:, :5], num_beams=3, do_sample=False, **asked))
        torch.manual_seed(1)
        same("sampled", model.generate(ids[:, :5], do_sample=True, top_k=20, top_p=0.9, temperature=0.8, **asked))
    model.save_pretrained(tmp_path / "model")
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))


@needs("transformers")
def test_llama(same) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    ids = torch.arange(40).reshape(2, 20) % 90
    same("losses", _trained(model, ids))
    model.eval()
    asked = {"attention_mask": torch.ones(2, 5, dtype=torch.long), "max_new_tokens": 6, "do_sample": False}
    same("greedy", model.generate(ids[:, :5], **asked))


@needs("transformers")
def test_other_families(same) -> None:
    import torch
    import transformers as hf

    sizes = {
        "vocab_size": 60,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
    }
    grouped = {**sizes, "num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    makers = {
        "Mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**grouped, sliding_window=4)),
        "Qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**grouped, head_dim=8)),
        "Gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**grouped, head_dim=8)),
        "Mixtral": lambda: hf.MixtralForCausalLM(
            hf.MixtralConfig(**grouped, num_local_experts=4, num_experts_per_tok=2)
        ),
        "Mamba": lambda: hf.MambaForCausalLM(
            hf.MambaConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2, state_size=4)
        ),
        "Bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=60, hidden_size=16, n_layer=2, n_head=2)),
    }
    ids = torch.arange(3, 27).reshape(2, 12)
    for name, make in makers.items():
        torch.manual_seed(0)
        model = make()
        same(f"{name} losses", _trained(model, ids, 3))
        asked = {"attention_mask": torch.ones(2, 5, dtype=torch.long), "pad_token_id": 0, "max_new_tokens": 4}
        same(f"{name} greedy", model.eval().generate(ids[:, :5], do_sample=False, **asked))
    torch.manual_seed(0)
    whisper = hf.WhisperForConditionalGeneration(hf.WhisperConfig(
        vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, num_mel_bins=8, max_source_positions=20, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=3, begin_suppress_tokens=None, suppress_tokens=None,
    ))  # fmt: skip
    loss = whisper(input_features=torch.randn(2, 8, 40), labels=torch.arange(12).reshape(2, 6)).loss
    loss.backward()
    same("Whisper", [loss, whisper.model.encoder.conv1.weight.grad.abs().sum()])


@needs("transformers", "accelerate")
def test_trainer_resumes(same, tmp_path: Path) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    class Regularised(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **more):
            outputs = model(**inputs)
            loss = outputs.loss + 0.01 * outputs.logits.pow(2).mean()
            return (loss, outputs) if return_outputs else loss

    def collate(rows):
        return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}

    def trainer():
        set_seed(0)
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1)
        )
        rows = [
            {"input_ids": torch.arange(12) * (i + 1) % 60, "labels": torch.arange(12) * (i + 1) % 60} for i in range(32)
        ]
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=50, per_device_train_batch_size=4, logging_steps=5, report_to=[], use_cpu=True, disable_tqdm=True,
            save_steps=25, eval_strategy="steps", eval_steps=25, learning_rate=1e-2, lr_scheduler_type="cosine", warmup_steps=5, weight_decay=0.01,
            gradient_accumulation_steps=2, seed=0,
        )  # fmt: skip
        return Regularised(
            model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:8], data_collator=collate
        )

    def losses(trained):
        return [
            entry.get("loss", entry.get("eval_loss"))
            for entry in trained.state.log_history
            if "loss" in entry or "eval_loss" in entry
        ]

    first = trainer()
    first.train()
    same("losses", losses(first), rtol=1e-4)
    second = trainer()
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-25"))
    assert losses(second)[-6:] == losses(first)[-6:]


@needs("transformers")
def test_bert_and_t5(same) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    ids = torch.arange(40).reshape(2, 20) % 90
    bert = BertForSequenceClassification(BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64, num_labels=3,
    ))  # fmt: skip
    loss = bert(input_ids=ids, attention_mask=torch.ones_like(ids), labels=torch.tensor([0, 2])).loss
    loss.backward()
    same("BERT", [loss, bert.bert.embeddings.word_embeddings.weight.grad.abs().sum()])
    t5 = T5ForConditionalGeneration(T5Config(
        vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0,
    ))  # fmt: skip
    loss = t5(input_ids=ids, labels=ids[:, :7].contiguous()).loss
    loss.backward()
    same("T5", [loss, t5.shared.weight.grad.abs().sum()])
    same("T5 generates", t5.eval().generate(ids[:, :6], max_new_tokens=5, do_sample=False))


@needs("transformers", "accelerate")
def test_trainer(same, tmp_path: Path) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    rows = [{"input_ids": (torch.arange(8) + i) % 50, "labels": (torch.arange(8) + i) % 50} for i in range(16)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", seed=0,
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    same("losses", [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], rtol=1e-3)


@needs("peft", "transformers", "accelerate")
def test_peft(same, tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    def base():
        torch.manual_seed(0)
        return GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4))

    model = get_peft_model(
        base(), LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    )
    ids = torch.arange(40).reshape(2, 20) % 90
    same("parameters", list(model.get_nb_trainable_parameters()))
    same("losses", _trained(model, ids))
    model.eval()
    with torch.no_grad():
        before = model(ids).logits
        model.save_pretrained(str(tmp_path / "lora"))
        loaded = PeftModel.from_pretrained(base(), str(tmp_path / "lora")).eval()
        torch.testing.assert_close(loaded(ids).logits, before)
        torch.testing.assert_close(model.merge_and_unload()(ids).logits, before, rtol=1e-4, atol=1e-5)


@needs("x_transformers")
def test_x_transformers(same) -> None:
    import torch
    from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True, attn_flash=False)
    model = TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers)
    ids = torch.arange(40).reshape(2, 20) % 50
    wrapped = AutoregressiveWrapper(model)
    loss = wrapped(ids)
    loss.backward()
    same("decoder", [loss, sum(p.grad.abs().sum() for p in model.parameters() if p.grad is not None)])
    same("greedy", wrapped.generate(ids[:, :4], 8, temperature=0.0))
    encoder = TransformerWrapper(
        num_tokens=50, max_seq_len=32, attn_layers=Encoder(dim=32, depth=1, heads=4, attn_flash=True, use_rmsnorm=True)
    )
    same("encoder", encoder(ids)[0, 0])


@needs("vector_quantize_pytorch", "einx", "sympy")
def test_vector_quantize(same) -> None:
    import torch
    from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize

    torch.manual_seed(0)
    x = torch.arange(2 * 6 * 8.0).reshape(2, 6, 8).sin().requires_grad_()
    vectors, codes, loss = VectorQuantize(dim=8, codebook_size=16, decay=0.8)(x)
    (vectors.sum() + loss.sum()).backward()
    same("VectorQuantize", [codes, loss, x.grad.sum()])
    same("FSQ", FSQ([8, 5, 5])(torch.arange(36.0).reshape(2, 6, 3).sin())[1])
    same("ResidualVQ", ResidualVQ(dim=8, num_quantizers=2, codebook_size=8)(x)[1])
