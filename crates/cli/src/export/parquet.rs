//! A table as Parquet: one optional column each, in row groups of a bounded size.

use super::{Cell, Kind, Metrics};
use crate::errors::{CliError, Result};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::sync::Arc;

/// Rows in a group, the unit in which readers load a file.
const GROUP: usize = 100_000;

/// The bytes of the file.
pub fn parquet(table: &Metrics) -> Result<Vec<u8>> {
    write(table).map_err(|error| CliError::Unwritten(format!("the table cannot be written as Parquet: {error}")))
}

fn write(table: &Metrics) -> std::result::Result<Vec<u8>, ParquetError> {
    let mut fields = vec![];
    for (name, kind) in &table.columns {
        let (physical, logical) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Whole => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(name, physical).with_logical_type(logical);
        fields.push(Arc::new(field.with_repetition(Repetition::OPTIONAL).build()?));
    }
    let schema = Arc::new(Type::group_type_builder("metrics").with_fields(fields).build()?);
    let made = format!("bilevel {}", env!("CARGO_PKG_VERSION"));
    let properties = Arc::new(WriterProperties::builder().set_created_by(made).build());
    let mut bytes = vec![];
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties)?;
    let mut first = 0;
    while first < table.rows.len() {
        let rows = first..(first + GROUP).min(table.rows.len());
        let mut group = writer.next_row_group()?;
        for column in 0..table.columns.len() {
            write_column(&mut group, table, column, rows.clone())?;
        }
        group.close()?;
        first = rows.end;
    }
    writer.close()?;
    Ok(bytes)
}

/// One column of a group: the values that are there, and for each row whether there is one.
fn write_column(
    group: &mut SerializedRowGroupWriter<&mut Vec<u8>>,
    table: &Metrics,
    column: usize,
    rows: std::ops::Range<usize>,
) -> std::result::Result<(), ParquetError> {
    let cells: Vec<Cell> = rows.map(|row| table.cell(row, column)).collect();
    let there: Vec<i16> = cells.iter().map(|cell| i16::from(*cell != Cell::Empty)).collect();
    let Some(mut writer) = group.next_column()? else { return Ok(()) };
    match table.columns[column].1 {
        Kind::Text => {
            let text =
                |cell: &Cell| if let Cell::Text(text) = cell { Some(ByteArray::from(text.as_str())) } else { None };
            let values: Vec<ByteArray> = cells.iter().filter_map(text).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, Some(&there), None)?;
        }
        Kind::Whole => {
            let whole = |cell: &Cell| if let Cell::Whole(whole) = cell { Some(*whole) } else { None };
            let values: Vec<i64> = cells.iter().filter_map(whole).collect();
            writer.typed::<Int64Type>().write_batch(&values, Some(&there), None)?;
        }
        Kind::Number => {
            let number = |cell: &Cell| if let Cell::Number(number) = cell { Some(*number) } else { None };
            let values: Vec<f64> = cells.iter().filter_map(number).collect();
            writer.typed::<DoubleType>().write_batch(&values, Some(&there), None)?;
        }
    }
    writer.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use std::io::Write;

    #[test]
    fn what_is_written_is_read_back_by_the_library() {
        let table = Metrics {
            columns: vec![("run".into(), Kind::Text), ("loss".into(), Kind::Number), ("iteration".into(), Kind::Whole)],
            rows: vec![
                vec![Cell::Text("λ, one".into()), Cell::Number(0.1 + 0.2), Cell::Whole(1)],
                vec![Cell::Empty, Cell::Whole(2)],
            ],
        };
        let bytes = parquet(&table).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        assert_eq!(rows[0], [Field::Str("λ, one".into()), Field::Double(0.1 + 0.2), Field::Long(1)]);
        assert_eq!(rows[1], [Field::Null, Field::Double(2.0), Field::Null]);
        assert!(parquet(&Metrics { rows: vec![], ..table }).is_ok());
    }
}
