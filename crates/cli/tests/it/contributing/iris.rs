//! Iris: the species of 150 flowers from four lengths.

use crate::error::Result;
use crate::readers::csv::{Format, read};
use crate::registry::{Access, Dataset};
use crate::table::Table;
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "iris",
    summary: "species of flowers, 150 rows of 4 numbers",
    licence: "CC BY 4.0",
    home: "https://archive.ics.uci.edu/dataset/53/iris",
    folder: "iris",
    access: Access::ByHand {
        how: "download iris.zip from https://archive.ics.uci.edu/dataset/53/iris and put iris.data into iris/",
        expects: &["iris.data"],
    },
};

/// All rows, with the species as the target, from the data folder.
pub fn load(root: impl AsRef<Path>) -> Result<Table> {
    read(root.as_ref().join(DATASET.folder).join("iris.data"), &Format::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_dataset_is_known_by_name_and_loaded_from_its_folder() {
        assert_eq!(crate::registry::find("iris").unwrap(), &DATASET);
        assert!(crate::registry::list().is_sorted_by_key(|dataset| dataset.name));
        let root = std::env::temp_dir().join(format!("bilevel-iris-{}", std::process::id()));
        std::fs::create_dir_all(root.join("iris")).unwrap();
        let rows = "5.1,3.5,1.4,0.2,Iris-setosa\n7.0,3.2,4.7,1.4,Iris-versicolor\n";
        std::fs::write(root.join("iris/iris.data"), rows).unwrap();
        let table = load(&root).unwrap();
        assert_eq!((table.rows(), table.columns, table.classes.len()), (2, 4, 2));
        std::fs::remove_dir_all(root).unwrap();
    }
}
