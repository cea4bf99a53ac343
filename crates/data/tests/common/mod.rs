//! Small files of every format, made here.

#![allow(dead_code, reason = "every test uses some of it")]

use std::io::{Cursor, Write};

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(vec![], bzip2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lzma_rust2::XzWriter::new(vec![], lzma_rust2::XzOptions::with_preset(1)).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zip(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(vec![]));
    for (path, bytes) in files {
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        writer.start_file(*path, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub fn tar(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(vec![]);
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, path, bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn idx(kind: u8, shape: &[u32], numbers: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    shape.iter().for_each(|length| bytes.extend(length.to_be_bytes()));
    bytes.extend(numbers);
    bytes
}

/// A `.npy` file as NumPy writes it: the header padded to a multiple of 64 bytes.
pub fn npy(kind: &str, fortran: bool, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((length as u16).to_le_bytes());
    bytes.extend(format!("{header:width$}\n", width = length - 1).bytes());
    bytes.extend(numbers);
    bytes
}

pub fn safetensors(arrays: &[(&str, safetensors::Dtype, &[usize], &[u8])]) -> Vec<u8> {
    let views = arrays.iter().map(|(name, dtype, shape, bytes)| {
        (name.to_string(), safetensors::tensor::TensorView::new(*dtype, shape.to_vec(), bytes).unwrap())
    });
    safetensors::serialize(views.collect::<Vec<_>>(), None).unwrap()
}

/// Records of CIFAR: this many labels before each picture.
pub fn cifar(records: &[&[u8]]) -> Vec<u8> {
    records.iter().flat_map(|labels| labels.iter().copied().chain((0..3072u32).map(|i| (i * 7) as u8))).collect()
}

fn drawing(width: u32, height: u32, seed: u8) -> image::RgbImage {
    image::RgbImage::from_fn(width, height, |x, y| {
        image::Rgb([(x * 16) as u8, (y * 16) as u8, seed.wrapping_add((x * y) as u8)])
    })
}

pub fn png(width: u32, height: u32, seed: u8) -> Vec<u8> {
    encoded(drawing(width, height, seed).into(), image::ImageFormat::Png)
}

pub fn png_with_opacity(width: u32, height: u32, seed: u8) -> Vec<u8> {
    let picture = image::DynamicImage::from(drawing(width, height, seed)).into_rgba8();
    encoded(picture.into(), image::ImageFormat::Png)
}

pub fn jpeg(width: u32, height: u32, seed: u8) -> Vec<u8> {
    encoded(drawing(width, height, seed).into(), image::ImageFormat::Jpeg)
}

fn encoded(picture: image::DynamicImage, format: image::ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(vec![]);
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A description of views with cameras that look along −z.
pub fn transforms(paths: &[&str]) -> Vec<u8> {
    let frame = |(number, path): (usize, &&str)| {
        format!(
            r#"{{"file_path": "{path}", "rotation": 0.1, "transform_matrix":
                [[1, 0, 0, {number}], [0, 1, 0, 0], [0, 0, 1, 4], [0, 0, 0, 1]]}}"#
        )
    };
    let frames: Vec<String> = paths.iter().enumerate().map(frame).collect();
    format!(r#"{{"camera_angle_x": 0.7, "frames": [{}]}}"#, frames.join(",")).into_bytes()
}
