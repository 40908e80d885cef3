"""Sizes of models, without a framework."""


def resnet50() -> list[int]:
    """Elements of each of the 161 parameters of ResNet-50, 25.6 million in all."""
    sizes, inputs = [64 * 3 * 49, 64, 64], 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            sizes += [planes * inputs, planes, planes, planes * planes * 9, planes, planes]
            sizes += [planes * 4 * planes, planes * 4, planes * 4]
            if block == 0:
                sizes += [planes * 4 * inputs, planes * 4, planes * 4]
            inputs = planes * 4
    return [*sizes, 2048 * 1000, 1000]
