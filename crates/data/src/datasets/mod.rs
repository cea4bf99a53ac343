//! Known datasets, one per file: its description, source, and loading from the data folder.

pub mod abalone;
pub mod adult;
pub mod cifar10;
pub mod cifar100;
pub mod describable_textures;
pub mod ijcnn1;
pub mod mini_imagenet;
pub mod mnist;
pub mod nerf_synthetic;
pub mod omniglot;
pub mod oxford_pets;
pub mod tiered_imagenet;
pub mod tiny_imagenet;

use crate::registry::Dataset;

/// All of them, sorted by name.
pub(crate) const ALL: &[&Dataset] = &[
    &adult::DATASET,
    &abalone::DATASET,
    &cifar10::DATASET,
    &cifar100::DATASET,
    &describable_textures::DATASET,
    &ijcnn1::DATASET,
    &mini_imagenet::DATASET,
    &mnist::DATASET,
    &nerf_synthetic::DATASET,
    &omniglot::DATASET,
    &oxford_pets::DATASET,
    &tiered_imagenet::DATASET,
    &tiny_imagenet::DATASET,
];
