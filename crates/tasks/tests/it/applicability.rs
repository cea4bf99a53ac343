//! Which methods apply to which tasks, as a table: a method that comes to apply, or no longer does, changes it.

use bilevel::Error;
use bilevel_run::Registry;
use std::path::Path;

#[test]
fn methods_apply_to_the_tasks_of_the_stored_table_and_to_no_others() {
    let registry = bilevel_tasks::register(Registry::new());
    let problems: Vec<_> = registry
        .tasks()
        .iter()
        .map(|known| (known.usual(), registry.usual(known.name).unwrap().problem(&registry).unwrap()))
        .collect();
    let mut table = format!("{:<17}", "");
    problems.iter().for_each(|(task, _)| table += &format!(" {}", task.name()));
    for method in registry.methods() {
        table += &format!("\n{:<17}", method.info.name);
        for (task, problem) in &problems {
            let settings = registry.suited(&**task, method.info.name).unwrap().method;
            let applies = match registry.read_method(&settings).unwrap().applies(problem) {
                Ok(()) => "yes",
                Err(Error::NotApplicable { .. }) => "-",
                Err(error) => panic!("{} on {}: {error}", method.info.name, task.name()),
            };
            table += &format!(" {applies:<width$}", width = task.name().len());
        }
        table = table.trim_end().to_string();
    }
    table += "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/applicability.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        table,
        "run the tests with UPDATE_GOLDEN=1 if this should be so"
    );
}
