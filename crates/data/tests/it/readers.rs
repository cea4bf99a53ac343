//! Every reader on small files of its format: what is in them, in every compression, and what is refused.

use crate::common::*;
use bilevel::DType;
use bilevel_data::datasets::{cifar100, mini_imagenet, nerf_synthetic, tiered_imagenet, tiny_imagenet};
use bilevel_data::readers::{cifar, csv, idx, libsvm, npy, pictures, safetensors, views};
use bilevel_data::{Elements, Error, Input, Limits};
use std::path::Path;

fn input(bytes: impl AsRef<[u8]>) -> Input {
    Input::from_bytes("file", bytes)
}

fn damaged<T>(found: Result<T, Error>) -> String {
    match found.err() {
        Some(Error::Damaged { reason, .. }) => reason,
        Some(other) => panic!("{other}"),
        None => panic!("it was read"),
    }
}

fn too_large<T>(found: Result<T, Error>) -> &'static str {
    match found.err() {
        Some(Error::TooLarge { limit, .. }) => limit,
        Some(other) => panic!("{other}"),
        None => panic!("it was read"),
    }
}

fn write(folder: &Path, path: &str, bytes: &[u8]) {
    let place = folder.join(path);
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::write(place, bytes).unwrap();
}

#[test]
fn a_file_reads_the_same_in_every_compression() {
    let file = idx(0x0b, &[2, 2], &[0, 1, 255, 255, 1, 0, 0, 2]);
    let expected = Elements::I16(vec![1, -1, 256, 2]);
    for packed in [file.clone(), gzip(&file), bzip2(&file), xz(&file)] {
        let found = idx::read(input(packed)).unwrap();
        assert_eq!((found.shape(), found.elements()), (&[2, 2][..], &expected));
    }
}

#[test]
fn idx_files_of_every_type_are_read() {
    let whole = |kind, numbers: &[u8]| idx::read(input(idx(kind, &[1], numbers))).unwrap().to_f64()[0];
    assert_eq!((whole(0x08, &[200]), whole(0x09, &[200])), (200.0, -56.0));
    assert_eq!((whole(0x0c, &(-7i32).to_be_bytes()), whole(0x0d, &1.5f32.to_be_bytes())), (-7.0, 1.5));
    assert_eq!(whole(0x0e, &0.1f64.to_be_bytes()), 0.1);
    assert!(damaged(idx::read(input([0, 0, 7, 0]))).starts_with("is not an idx file"));
    assert!(damaged(idx::read(input(idx(8, &[1], &[1, 2])))).ends_with("there is something after it"));
}

#[test]
fn labels_and_images_have_to_fit_together() {
    let images = || input(idx(8, &[2, 1, 1], &[5, 6]));
    let labels = |labels: &[u8]| input(idx(8, &[labels.len() as u32], labels));
    assert_eq!(idx::read_labelled(images(), labels(&[1, 0]), 2).unwrap().labels, [1, 0]);
    assert!(damaged(idx::read_labelled(images(), labels(&[1, 2]), 2)).contains("label 2"));
    assert!(damaged(idx::read_labelled(images(), labels(&[1]), 2)).contains("has 1 labels"));
}

#[test]
fn a_size_that_is_only_declared_allocates_nothing() {
    assert_eq!(too_large(idx::read(input(idx(8, &[u32::MAX; 4], &[1])))), "bytes");
    let declared = npy("<f8", false, "(99999999999, 999999999)", &[1; 8]);
    assert_eq!(too_large(npy::read(input(declared))), "bytes");
    let sparse = libsvm::read(input("1 4294967295:1\n".repeat(2)), libsvm::FirstIndex::One).unwrap();
    assert_eq!(too_large(sparse.to_table(None)), "bytes");
}

#[test]
fn what_unpacks_without_end_is_refused() {
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let zeros = vec![0; 4 << 20];
    for packed in [gzip(&zeros), bzip2(&zeros), xz(&zeros), zeros.clone()] {
        assert_eq!(too_large(cifar::read(input(packed).limited(limits), cifar::Kind::Ten)), "bytes");
    }
    let bomb = zip(&[("a/data_batch_1.bin", zeros.clone())]);
    assert_eq!(
        too_large(cifar::read_archive(input(bomb).limited(limits), cifar::Kind::Ten, cifar::Part::Train)),
        "bytes"
    );
    // 100 MiB of zeros in 100 kB: allowed by the number of bytes, and not by what can come of so small a file.
    let huge = gzip(&vec![0; 100 << 20]);
    assert_eq!(too_large(idx::read(input(huge))), "expansion");
}

#[test]
fn a_compressed_file_that_is_cut_off_is_refused() {
    let file = cifar(&[&[1], &[2]]);
    for packed in [gzip(&file), bzip2(&file), xz(&file)] {
        for end in [packed.len() / 2, packed.len() - 1] {
            damaged(cifar::read(input(&packed[..end]), cifar::Kind::Ten));
        }
    }
}

#[test]
fn cifar_is_read_from_records_archives_and_folders() {
    let files = [
        ("cifar-10-batches-bin/data_batch_2.bin", cifar(&[&[2]])),
        ("cifar-10-batches-bin/data_batch_1.bin", cifar(&[&[0], &[1]])),
        ("cifar-10-batches-bin/test_batch.bin", cifar(&[&[9]])),
        ("cifar-10-batches-bin/readme.html", vec![1, 2, 3]),
    ];
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(path, bytes)| write(folder.path(), path, bytes));
    let packed = [tar(&files), gzip(&tar(&files)), xz(&tar(&files)), zip(&files)].map(input);
    for input in packed.into_iter().chain([Input::new(folder.path())]) {
        let part = |part| cifar::read_archive(&input, cifar::Kind::Ten, part).unwrap();
        assert_eq!((part(cifar::Part::Train).labels, part(cifar::Part::Test).labels), (vec![0, 1, 2], vec![9]));
        assert_eq!(part(cifar::Part::Test).images.image(0)[..3], [0, 7, 14]);
    }
    assert!(damaged(cifar::read(input(cifar(&[&[10]])), cifar::Kind::Ten)).contains("label 10 in record 0"));
    let empty = cifar::read_archive(input(tar(&[("x", vec![])])), cifar::Kind::Ten, cifar::Part::Test);
    assert_eq!(damaged(empty), "has no files of the test part of CIFAR-10");
}

#[test]
fn cifar_100_gives_its_fine_labels() {
    let folder = tempfile::tempdir().unwrap();
    let files = [("c/train.bin", cifar(&[&[4, 99], &[1, 0]])), ("c/test.bin", cifar(&[&[19, 7]]))];
    write(folder.path(), "cifar100/cifar-100-binary.tar.gz", &gzip(&tar(&files)));
    let (train, test) = cifar100::load(folder.path()).unwrap();
    assert_eq!((train.labels, test.labels, train.classes.len()), (vec![99, 0], vec![7], 100));
}

#[test]
fn numpy_arrays_of_every_type_order_and_version_are_read() {
    let read = |kind: &str, numbers: &[u8]| npy::read(input(npy(kind, false, "(1,)", numbers))).unwrap().to_f64()[0];
    assert_eq!((read("|b1", &[1]), read("|u1", &[255]), read("|i1", &[255])), (1.0, 255.0, -1.0));
    assert_eq!((read("<u2", &[1, 2]), read(">u2", &[1, 2])), (513.0, 258.0));
    assert_eq!((read("<u4", &[255; 4]), read("<i4", &[255; 4])), (4294967295.0, -1.0));
    assert_eq!((read("<i8", &[255; 8]), read("<u8", &[255; 8])), (-1.0, 2f64.powi(64)));
    assert_eq!((read("<f2", &[0, 0x3e]), read("<f4", &2.5f32.to_le_bytes())), (1.5, 2.5));
    assert_eq!(read(">f8", &0.1f64.to_be_bytes()), 0.1);
    let fortran = npy::read(input(npy("|u1", true, "(2, 3)", &[1, 4, 2, 5, 3, 6]))).unwrap();
    assert_eq!((fortran.shape(), fortran.to_f64()), (&[2, 3][..], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    assert_eq!(npy::read(input(npy("<f4", false, "()", &[0; 4]))).unwrap().shape(), [0; 0]);
    // Version 2 has four bytes of length.
    let mut second = npy("|u1", false, "(1,)", &[7]);
    second.splice(6..10, [2, 0, second[8], second[9], 0, 0]);
    assert_eq!(npy::read(input(second)).unwrap().to_f64(), [7.0]);
    for (kind, shape) in [("<c8", "(1,)"), ("|O", "(1,)"), ("<f4", "(-1,)"), ("<f4", "(1")] {
        damaged(npy::read(input(npy(kind, false, shape, &[0; 8]))));
    }
}

#[test]
fn an_npz_file_is_read_by_the_names_of_its_arrays() {
    let file =
        zip(&[("images.npy", npy("|u1", false, "(2,)", &[3, 4])), ("labels.npy", npy("<i8", false, "(1,)", &[0; 8]))]);
    let arrays = npy::read_npz(input(file)).unwrap();
    assert_eq!(arrays.keys().collect::<Vec<_>>(), ["images", "labels"]);
    assert_eq!(arrays["images"].to_f64(), [3.0, 4.0]);
}

#[test]
fn safetensors_of_other_types_become_those_of_a_problem() {
    use ::safetensors::Dtype;
    let file = crate::common::safetensors(&[
        ("half", Dtype::F16, &[2], &[0, 0x3c, 0, 0xc0]),
        ("brain", Dtype::BF16, &[1], &[0x80, 0x3f]),
        ("whole", Dtype::I64, &[1, 1], &5i64.to_le_bytes()),
    ]);
    let arrays = safetensors::read(input(&file)).unwrap();
    assert_eq!(arrays["half"].to_array(DType::F32).unwrap().to_f64(), [1.0, -2.0]);
    assert_eq!((arrays["brain"].to_f64(), arrays["whole"].to_f64()), (vec![1.0], vec![5.0]));
    damaged(safetensors::read(input(&file[..file.len() - 1])));
}

#[test]
fn libsvm_is_read_from_zero_or_one() {
    let text = "-1 0:1 2:2\n\n1.5 1:3 # a comment\n";
    let zero = libsvm::read(input(text), libsvm::FirstIndex::Zero).unwrap();
    assert_eq!((zero.rows(), zero.columns(), zero.targets()), (2, 3, &[-1.0, 1.5][..]));
    assert_eq!((zero.row(0), zero.row(1), zero.row(2)), (&[(0, 1.0), (2, 2.0)][..], &[(1, 3.0)][..], &[][..]));
    assert_eq!(zero.to_table(Some(4)).unwrap().values, [1.0, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
    assert!(damaged(zero.to_table(Some(2))).contains("at least 3"));
    assert!(damaged(libsvm::read(input(text), libsvm::FirstIndex::One)).contains("FirstIndex::Zero"));
    for wrong in ["x 1:2", "1 1", "1 a:2", "1 1:nan", "1 2:1 1:1", "1 99999999999:1", "\u{fffd}"] {
        assert!(damaged(libsvm::read(input(wrong), libsvm::FirstIndex::One)).starts_with("has, in line 1"), "{wrong}");
    }
}

#[test]
fn tables_have_their_target_where_the_format_says() {
    let text = "a,b,c\n1,2,x\n3,4,y\n5,6,x\n";
    let format = |target| csv::Format { header: csv::Header::Names, target, ..csv::Format::default() };
    let table = csv::read(input(text), &format(csv::Target::Last)).unwrap();
    assert_eq!((table.names.join(" "), table.labels().unwrap()), ("a b".to_string(), vec![0, 1, 0]));
    assert_eq!(table.take(&[2, 0]).unwrap().values, [5.0, 6.0, 1.0, 2.0]);
    let named = csv::read(input(text.replace('x', "7").replace('y', "8")), &format(csv::Target::Named("b".into())));
    let named = named.unwrap();
    assert_eq!(
        (named.targets.clone(), named.values[..2].to_vec(), named.classes.len()),
        (vec![2.0, 4.0, 6.0], vec![1.0, 7.0], 0)
    );
    assert!(damaged(csv::read(input(text), &format(csv::Target::Named("d".into())))).contains("no column 'd'"));
    assert!(damaged(csv::read(input("1,2\n3\n"), &csv::Format::default())).starts_with("is not a table"));
}

#[test]
fn zero_is_one_class_with_either_sign() {
    let table = csv::read(input("1,-0\n2,0\n3,1\n"), &csv::Format::default()).unwrap();
    assert_eq!(table.labels().unwrap(), [0, 0, 1]);
}

#[test]
fn a_tar_file_that_is_cut_off_between_two_files_is_refused() {
    let files = [("a.png", png(6, 4, 1)), ("b.png", png(6, 4, 2))];
    let whole = tar(&files);
    // Two blocks of zeros end it; before them, and before the second file, there is nothing to tell.
    let first = tar(&files[..1]).len() - 1024;
    for end in [first, whole.len() - 1024] {
        let found = pictures::read(input(&whole[..end]), &pictures::Settings::default());
        assert_eq!(damaged(found), "has no end-of-archive marker: it is truncated");
    }
}

#[cfg(unix)]
#[test]
fn links_to_folders_are_followed_once_and_never_around() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(folder.path(), "cat/a.png", &png(4, 4, 1));
    write(other.path(), "b.png", &png(4, 4, 2));
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    link(other.path(), "dog");
    ["cat/up", "cat/again", "round"].iter().for_each(|name| link(folder.path(), name));
    let found = pictures::read(folder.path(), &pictures::Settings::default()).unwrap();
    assert_eq!(found.paths, ["cat/a.png", "dog/b.png"]);
}

#[test]
fn pictures_are_the_same_from_folders_and_archives() {
    let files = [
        ("dog/b.jpeg", jpeg(6, 4, 2)),
        ("./cat/a.PNG", png(6, 4, 1)),
        ("cat/notes.txt", vec![1]),
        ("cat/._a.png", vec![1]),
    ];
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(path, bytes)| write(folder.path(), path, bytes));
    let settings = pictures::Settings::default();
    let expected = pictures::read(folder.path(), &settings).unwrap();
    assert_eq!((expected.images.shape(), &*expected.paths.join(" ")), ([2, 3, 4, 6], "cat/a.PNG dog/b.jpeg"));
    // The red plane of the first grows by 16 from column to column.
    assert_eq!(expected.images.image(0)[..6], [0, 16, 32, 48, 64, 80]);
    for packed in [tar(&files), xz(&tar(&files)), bzip2(&tar(&files)), zip(&files)] {
        assert_eq!(pictures::read(input(packed), &settings).unwrap(), expected);
    }
    let labelled = expected.by_folder().unwrap();
    assert_eq!((labelled.labels, labelled.classes), (vec![0, 1], vec!["cat".to_string(), "dog".into()]));
}

#[test]
fn pictures_of_different_sizes_need_a_size() {
    let files = tar(&[("a.png", png(6, 4, 1)), ("b.png", png(4, 4, 1))]);
    let read = |settings: pictures::Settings| pictures::read(input(&files), &settings);
    assert!(damaged(read(pictures::Settings::default())).contains("is 4 by 4 pixels, but the first picture is 4 by 6"));
    for fit in [pictures::Fit::Stretch, pictures::Fit::Crop] {
        let settings = pictures::Settings { size: Some([2, 3]), channels: pictures::Channels::Grey, fit };
        assert_eq!(read(settings).unwrap().images.shape(), [2, 1, 2, 3]);
    }
    let nothing = pictures::Settings { size: Some([0, 3]), ..pictures::Settings::default() };
    damaged(read(nothing));
}

#[test]
fn a_picture_that_is_too_large_is_not_decoded() {
    let limits = Limits { pixels: 67, ..Limits::default() };
    for large in [png(17, 4, 0), jpeg(4, 17, 0)] {
        let found = pictures::read(input(tar(&[("a.png", large)])).limited(limits), &pictures::Settings::default());
        assert_eq!(too_large(found), "pixels");
    }
}

#[test]
fn what_pictures_will_take_is_known_before_they_are_decoded() {
    // 20 pictures of 48 kB as pixels; the last is damaged, which nobody finds out where that is too much.
    let (whole, limits) = (png(128, 128, 0), Limits { bytes: 900_000, ..Limits::default() });
    let names: Vec<String> = (0..20).map(|number| format!("{number:02}.png")).collect();
    let mut files: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (name.as_str(), whole.clone())).collect();
    files[19].1.truncate(whole.len() / 2);
    for size in [None, Some([128, 128])] {
        let settings = pictures::Settings { size, ..pictures::Settings::default() };
        assert_eq!(too_large(pictures::read(input(zip(&files)).limited(limits), &settings)), "bytes");
        assert!(damaged(pictures::read(input(zip(&files)), &settings)).starts_with("cannot be decoded"));
    }
}

#[test]
fn a_path_that_is_there_twice_is_refused() {
    let files = tar(&[("a.png", png(4, 4, 1)), ("./a.png", png(4, 4, 2))]);
    assert_eq!(damaged(pictures::read(input(files), &pictures::Settings::default())), "has 'a.png' twice");
}

#[test]
fn kept_pictures_are_used_and_made_again_where_they_are_damaged_or_of_something_else() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(folder.path(), "a/x.png", &png(8, 8, 1));
    let settings = pictures::Settings::default();
    let read = |settings: &pictures::Settings| pictures::read_cached(folder.path(), settings, cache.path()).unwrap();
    let kept = || -> Vec<_> { std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let first = read(&settings);
    let [file] = kept().try_into().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    // What is kept is used: exchanged for other pixels with a right checksum it would come back; damaged in any way it
    // does not.
    for place in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        let mut wrong = bytes.clone();
        wrong[place] ^= 4;
        std::fs::write(&file, wrong).unwrap();
        assert_eq!(read(&settings), first, "byte {place}");
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "byte {place}");
    }
    for end in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&file, &bytes[..end]).unwrap();
        assert_eq!(read(&settings), first);
    }
    std::fs::write(&file, [&bytes[..], b"more"].concat()).unwrap();
    assert_eq!(read(&settings), first);
    // A file that is whole is not written again.
    let date = std::fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(read(&settings), first);
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), date);
    // Other settings and other pictures have files of their own.
    assert_eq!(read(&pictures::Settings { size: Some([4, 4]), ..settings }).images.shape(), [1, 3, 4, 4]);
    write(folder.path(), "a/y.png", &png(8, 8, 2));
    assert_eq!(read(&settings).images.count(), 2);
    assert_eq!(kept().len(), 3);
}

#[test]
fn views_come_in_the_order_of_their_description() {
    let files = [
        ("scene/transforms_train.json", transforms(&["./train/r_1", "train/r_0.png"])),
        ("scene/train/r_0.png", png_with_opacity(3, 2, 0)),
        ("scene/train/r_1.png", png_with_opacity(3, 2, 100)),
    ];
    let found = views::read(input(zip(&files)), "transforms_train.json").unwrap();
    assert_eq!((found.images.shape(), found.poses[1][0][3]), ([2, 4, 2, 3], 1.0));
    assert_eq!((found.images.image(0)[12], found.images.image(1)[12]), (100, 0));
    assert_eq!(found.images.image(0)[18..], [255; 6]);
    assert_eq!((found.rays(0).len(), found.rays(2).len()), (6, 0));
    let twice = [("t.json", transforms(&["a", "./a.png"])), ("a.png", png(2, 2, 0))];
    assert_eq!(damaged(views::read(input(tar(&twice)), "t.json")), "has the picture a.png twice in its t.json");
    assert!(
        damaged(views::read(input(zip(&files)), "transforms_test.json")).starts_with("has no transforms_test.json")
    );
}

#[test]
fn the_few_shot_sets_are_read_in_their_published_layouts() {
    let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["n01_1.jpg", "n01_2.jpg", "n02_1.jpg", "n03_1.jpg"] {
        write(root.path(), &format!("mini-imagenet/images/{name}"), &jpeg(10, 8, 1));
    }
    let split = |name: &str, rows: &str| write(root.path(), &format!("mini-imagenet/{name}"), rows.as_bytes());
    split("train.csv", "filename,label\nn01_2.jpg,n01\nn01_1.jpg,n01\n");
    split("val.csv", "filename,label\r\nn02_1.jpg,n02\r\n");
    split("test.csv", "filename,label\nn03_1.jpg,n03\n");
    let mini = mini_imagenet::load(root.path(), 6, cache.path()).unwrap();
    assert_eq!((mini.train.images.shape(), mini.train.classes.join(" ")), ([2, 3, 6, 6], "n01".to_string()));
    assert_eq!((mini.validation.classes[0].as_str(), mini.test.classes[0].as_str()), ("n02", "n03"));
    split("test.csv", "filename,label\nn04_1.jpg,n04\n");
    assert!(damaged(mini_imagenet::load(root.path(), 6, cache.path())).contains("names n04_1.jpg"));

    for path in ["train/n01/a.jpg", "train/n02/b.jpg", "val/n03/c.jpg", "test/n04/d.jpg"] {
        write(root.path(), &format!("tiered-imagenet/{path}"), &jpeg(7, 7, 1));
    }
    let tiered = tiered_imagenet::load(root.path(), 7, cache.path()).unwrap();
    assert_eq!((tiered.train.classes.len(), tiered.validation.count(), tiered.test.count()), (2, 1, 1));

    let files = [
        ("tiny-imagenet-200/train/n01/images/n01_0.JPEG", jpeg(64, 64, 1)),
        ("tiny-imagenet-200/train/n02/images/n02_0.JPEG", jpeg(64, 64, 1)),
        ("tiny-imagenet-200/val/images/val_0.JPEG", jpeg(64, 64, 2)),
        ("tiny-imagenet-200/val/images/val_1.JPEG", jpeg(64, 64, 3)),
        (
            "tiny-imagenet-200/val/val_annotations.txt",
            b"val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n".to_vec(),
        ),
    ];
    write(root.path(), "tiny-imagenet/tiny-imagenet-200.zip", &zip(&files));
    let (train, validation) = tiny_imagenet::load(root.path(), cache.path()).unwrap();
    assert_eq!(
        (train.labels, validation.labels, train.classes),
        (vec![0, 1], vec![1, 0], vec!["n01".to_string(), "n02".into()])
    );
}

#[test]
fn a_synthetic_scene_is_read_from_its_folder() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "nerf-synthetic/lego/transforms_val.json", &transforms(&["./val/r_0"]));
    write(root.path(), "nerf-synthetic/lego/val/r_0.png", &png_with_opacity(4, 4, 9));
    let views = nerf_synthetic::load(root.path(), "lego", "val").unwrap();
    assert_eq!((views.images.shape(), views.angle), ([1, 4, 4, 4], 0.7));
}
