"""The Trainer of Transformers over horovod: start the process group yourself, before the TrainingArguments.

torchrun --nproc-per-node 2 examples/transformers_digits.py
"""

import tempfile

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import horovod.torch.distributed  # noqa: F401  (makes the backend known)

dist.init_process_group("hvd")  # the Trainer takes the group that is there
torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
pixels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
rows = [{"pixel_values": x, "labels": int(y)} for x, y in zip(pixels, labels, strict=True)]
config = ViTConfig(
    image_size=8,
    patch_size=2,
    num_channels=1,
    num_labels=10,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
)

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=32,
        num_train_epochs=2,
        learning_rate=0.005,
        logging_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(ViTForImageClassification(config), arguments, train_dataset=rows)
    result = trainer.train()
if dist.get_rank() == 0:
    print(f"loss {result.training_loss:.3f} of {arguments.world_size} processes")
dist.destroy_process_group()
