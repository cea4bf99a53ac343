//! The vision transformer (Dosovitskiy et al. 2021), laid out and named as in timm.

use crate::error::{Result, require, sizes};
use crate::init::fan_in_uniform;
use crate::layers::{LayerNorm, Linear};
use bilevel::Variable;
use bilevel_graph::{DotDims, Tensor, Tree, nn};

/// Patches as tokens, a class token before them, position embeddings, transformer blocks; the class token is
/// classified.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Vit<T> {
    /// `[1, 1, width]`.
    pub cls_token: T,
    /// `[1, 1 + patches, width]`.
    pub pos_embed: T,
    /// From pixels to tokens.
    pub patch_embed: PatchEmbed<T>,
    /// The blocks, in order.
    pub blocks: Vec<Block<T>>,
    /// The norm of the class token, after the last block.
    pub norm: LayerNorm<T>,
    /// To the classes.
    pub head: Linear<T>,
}

/// A linear map of each square of pixels to a token.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct PatchEmbed<T> {
    /// The map.
    pub proj: Projection<T>,
}

/// A kernel as wide as its stride: every patch is seen once.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Projection<T> {
    /// `[width, c, patch, patch]`.
    pub weight: T,
    /// `[width]`.
    pub bias: T,
}

/// x + attention(norm x), then x + mlp(norm x).
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Block<T> {
    /// Before the attention.
    pub norm1: LayerNorm<T>,
    /// Between tokens.
    pub attn: Attention<T>,
    /// Before the perceptron.
    pub norm2: LayerNorm<T>,
    /// In every token.
    pub mlp: Feed<T>,
}

/// Attention of every token to all, in several heads.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Attention<T> {
    /// Queries, keys and values of all heads: `[width, 3·width]`.
    pub qkv: Linear<T>,
    /// The projection of the heads' outputs.
    pub proj: Linear<T>,
    /// How many heads there are.
    pub heads: usize,
}

/// The perceptron of a block.
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Feed<T> {
    /// To the hidden width.
    pub fc1: Linear<T>,
    /// And back.
    pub fc2: Linear<T>,
}

/// Added to variances.
const EPS: f64 = 1e-6;
/// Standard deviation of weights at the start.
const DEVIATION: f64 = 0.02;
/// Tokens are padded to a multiple of this number, if that adds less than one token in this many. Rows of the scores of
/// an attention then begin at multiples of 16 bytes, which GPUs read at once.
const TOGETHER: usize = 8;
const FEW: usize = 32;
/// Added to the scores of a token that is to be ignored: its weight is exactly 0.
const HIDDEN: f64 = -1e30;

/// Sizes of a [`Vit`].
///
/// ```
/// use bilevel_models::{VitConfig, parameter_count};
/// assert_eq!(parameter_count(&VitConfig::base(16, 1000).build()?), 86_567_656);
/// let tiny = VitConfig { image: [32, 32], width: 48, heads: 4, hidden: 96, depth: 3, ..VitConfig::small(8, 10) };
/// assert_eq!(tiny.build()?.pos_embed.shape(), [1, 17, 48]);
/// # Ok::<(), bilevel_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct VitConfig {
    /// Height and width of the images.
    pub image: [usize; 2],
    /// Channels of the images.
    pub channels: usize,
    /// Height and width of a patch.
    pub patch: usize,
    /// Length of a token.
    pub width: usize,
    /// Blocks.
    pub depth: usize,
    /// Heads of every attention.
    pub heads: usize,
    /// Hidden width of every perceptron.
    pub hidden: usize,
    /// Classes.
    pub classes: usize,
}

impl VitConfig {
    fn sized(patch: usize, classes: usize, [width, depth, heads, hidden]: [usize; 4]) -> Self {
        VitConfig { image: [224, 224], channels: 3, patch, width, depth, heads, hidden, classes }
    }

    /// ViT-S on 224×224 images: 22 million parameters.
    pub fn small(patch: usize, classes: usize) -> Self {
        Self::sized(patch, classes, [384, 12, 6, 1536])
    }

    /// ViT-B on 224×224 images: 86 million parameters.
    pub fn base(patch: usize, classes: usize) -> Self {
        Self::sized(patch, classes, [768, 12, 12, 3072])
    }

    /// ViT-L on 224×224 images: 304 million parameters.
    pub fn large(patch: usize, classes: usize) -> Self {
        Self::sized(patch, classes, [1024, 24, 16, 4096])
    }

    /// ViT-g on 224×224 images: a billion parameters.
    pub fn giant(patch: usize, classes: usize) -> Self {
        Self::sized(patch, classes, [1408, 40, 16, 6144])
    }

    /// The model, with timm's start. Weights and positions are normal with deviation 0.02 (timm cuts them off at ±2, a
    /// hundred deviations), and the class token with 1e-6. Patches start as [`fan_in_uniform`], biases at 0.
    ///
    /// # Errors
    ///
    /// If a size is 0, patches do not tile the image, or heads do not share the width equally.
    pub fn build(&self) -> Result<Vit<Variable>> {
        let VitConfig { image: [height, image_width], channels, patch, width, depth, heads, hidden, classes } = *self;
        let name = "ViT";
        let of_images = [("image height", height), ("image width", image_width), ("channels", channels)];
        let of_tokens = [("patch", patch), ("width", width), ("heads", heads), ("hidden", hidden)];
        sizes(name, &[&of_images[..], &of_tokens, &[("depth", depth), ("classes", classes)]].concat())?;
        let tiled = height.is_multiple_of(patch) && image_width.is_multiple_of(patch);
        require(name, tiled, || format!("patches of {patch}×{patch} do not tile {height}×{image_width} images"))?;
        require(name, width.is_multiple_of(heads), || {
            format!("a width of {width} cannot be divided among {heads} heads")
        })?;
        let tokens = 1 + (height / patch) * (image_width / patch);
        let fan = channels * patch * patch;
        Ok(Vit {
            cls_token: Variable::normal([1, 1, width], 1e-6),
            pos_embed: Variable::normal([1, tokens, width], DEVIATION),
            patch_embed: PatchEmbed {
                proj: Projection {
                    weight: fan_in_uniform([width, channels, patch, patch], fan),
                    bias: fan_in_uniform([width], fan),
                },
            },
            blocks: (0..depth).map(|_| Block::new(width, heads, hidden)).collect(),
            norm: LayerNorm::new(width, EPS),
            head: normal(width, classes),
        })
    }
}

/// The number of padding tokens for this many tokens.
fn idle(tokens: usize) -> usize {
    let idle = tokens.next_multiple_of(TOGETHER) - tokens;
    if idle * FEW <= tokens { idle } else { 0 }
}

/// An affine map as timm starts it.
fn normal(inputs: usize, outputs: usize) -> Linear<Variable> {
    Linear::new(Variable::normal([inputs, outputs], DEVIATION))
}

impl Block<Variable> {
    /// A block for tokens of this width, with a perceptron of this hidden width.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph};
    /// use bilevel_models::{inputs, vit::Block};
    /// let g = Graph::new();
    /// let y = inputs(&Block::new(8, 2, 32), &g, DType::F32).forward(g.input("x", [4, 5, 8], DType::F32));
    /// assert_eq!(y.check().unwrap().shape(), [4, 5, 8]);
    /// ```
    pub fn new(width: usize, heads: usize, hidden: usize) -> Self {
        Block {
            norm1: LayerNorm::new(width, EPS),
            attn: Attention { qkv: normal(width, width.saturating_mul(3)), proj: normal(width, width), heads },
            norm2: LayerNorm::new(width, EPS),
            mlp: Feed { fc1: normal(width, hidden), fc2: normal(hidden, width) },
        }
    }
}

impl Vit<Tensor> {
    /// Logits `[n, classes]` of images `[n, c, h, w]`.
    #[track_caller]
    pub fn forward(&self, images: Tensor) -> Tensor {
        self.head.forward(self.features(images))
    }

    /// The input of the head: the class token `[n, width]` after all blocks, normalised.
    #[track_caller]
    pub fn features(&self, images: Tensor) -> Tensor {
        let patches = self.patch_embed.proj.forward(images);
        let (batch, width, tokens) = (patches.dim(0), patches.dim(2), patches.dim(1) + 1);
        let cls = self.cls_token.broadcast_to([batch, 1, width]);
        let (mut x, mask) = match idle(tokens) {
            0 => (cls.concat(&[patches], 1) + self.pos_embed, None),
            idle => {
                let zeros = images.constant_like(0.0, [batch, idle, width]);
                let hidden = images.constant_like(HIDDEN, [idle]);
                let mask = images.constant_like(0.0, [tokens]).concat(&[hidden], 0);
                (cls.concat(&[patches, zeros], 1) + self.pos_embed.pad(1, 0, idle), Some(mask))
            }
        };
        // Only the class token is classified, so of the last block only its row is computed, and only it is normalised.
        if let Some((last, before)) = self.blocks.split_last() {
            for block in before {
                x = block.forward_masked(x, mask);
            }
            x = last.forward_first(x, mask);
        }
        self.norm.forward(x.index(1, 0))
    }
}

impl Projection<Tensor> {
    /// Images `[n, c, h, w]` to tokens `[n, patches, width]`, row by row of patches.
    #[track_caller]
    pub fn forward(&self, images: Tensor) -> Tensor {
        let (n, c, [width, fan]) = (images.dim(0), images.dim(1), self.matrix_shape());
        let side = [self.weight.dim(2), self.weight.dim(3)];
        let [rows, columns] = [0, 1].map(|i| images.dim(2 + i).checked_div(side[i]).unwrap_or(0));
        // Each pixel is in one patch, so that this is one product of matrices: [n, patches, c·patch²] with [width,
        // c·patch²].
        let cut = images.reshape([n, c, rows, side[0], columns, side[1]]).transpose([0, 2, 4, 1, 3, 5]);
        let dims = DotDims { lhs_contract: vec![2], rhs_contract: vec![1], ..DotDims::default() };
        cut.reshape([n, rows * columns, fan]).dot(self.weight.reshape([width, fan]), dims) + self.bias
    }

    fn matrix_shape(&self) -> [usize; 2] {
        let width = self.weight.dim(0);
        [width, self.weight.len().checked_div(width).unwrap_or(0)]
    }
}

impl Block<Tensor> {
    /// `[n, tokens, width]` to the same shape.
    #[track_caller]
    pub fn forward(&self, x: Tensor) -> Tensor {
        self.forward_masked(x, None)
    }

    /// The same with a mask, which is added to the scores of the attention, `[n, heads, tokens, tokens]`.
    #[track_caller]
    pub fn forward_masked(&self, x: Tensor, mask: Option<Tensor>) -> Tensor {
        self.feed(x + self.attn.forward(self.norm1.forward(x), mask))
    }

    /// The output of [`forward_masked`](Self::forward_masked) for the first token, `[n, 1, width]`, without the work
    /// for the others, which only provide keys and values.
    #[track_caller]
    fn forward_first(&self, x: Tensor, mask: Option<Tensor>) -> Tensor {
        self.feed(x.slice(1, 0, 1) + self.attn.forward_first(self.norm1.forward(x), mask))
    }

    fn feed(&self, x: Tensor) -> Tensor {
        x + self.mlp.fc2.forward(nn::gelu(self.mlp.fc1.forward(self.norm2.forward(x))))
    }
}

impl Attention<Tensor> {
    /// `[n, tokens, width]` to the same shape, with a mask that is added to the scores `[n, heads, tokens, tokens]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor, mask: Option<Tensor>) -> Tensor {
        let (n, tokens, width) = (x.dim(0), x.dim(1), x.dim(2));
        let each = width.checked_div(self.heads).unwrap_or(0);
        let qkv = self.qkv.forward(x).reshape([n, tokens, 3, self.heads, each]).transpose([2, 0, 3, 1, 4]);
        let found = nn::scaled_dot_product_attention(qkv.index(0, 0), qkv.index(0, 1), qkv.index(0, 2), mask);
        self.proj.forward(found.transpose([0, 2, 1, 3]).reshape([n, tokens, width]))
    }

    /// The output of [`forward`](Self::forward) for the first token: `[n, 1, width]`.
    #[track_caller]
    fn forward_first(&self, x: Tensor, mask: Option<Tensor>) -> Tensor {
        let (n, tokens, width) = (x.dim(0), x.dim(1), x.dim(2));
        let each = width.checked_div(self.heads).unwrap_or(0);
        let qkv = self.qkv.forward(x).reshape([n, tokens, 3, self.heads, each]).transpose([2, 0, 3, 1, 4]);
        let query = qkv.index(0, 0).slice(2, 0, 1);
        let found = nn::scaled_dot_product_attention(query, qkv.index(0, 1), qkv.index(0, 2), mask);
        self.proj.forward(found.reshape([n, 1, width]))
    }
}

#[cfg(test)]
mod tests {
    use super::idle;

    #[test]
    fn tokens_are_added_where_they_are_few() {
        assert_eq!([1, 17, 63, 64, 65, 197, 257].map(idle), [0, 0, 1, 0, 0, 3, 7]);
    }
}
