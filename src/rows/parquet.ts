import { zstdCompressSync } from 'node:zlib'
import { ByteWriter, ParquetWriter } from 'hyparquet-writer'
import { writePageHeader } from 'hyparquet-writer/src/datapage.js'
import { bytesOf, type NumberArray } from '../kit/index.ts'
import {
  interactionColumns,
  mergedColumns,
  type NumbersColumn,
  type RowColumns,
  structElements,
  valueIn,
} from './parquet-columns.ts'
import type { EndRow, Row } from './row.ts'

/**
 * Rows as the chunks of a Parquet file; docs/export.md has its columns. Rows are held until they fill a row group, so memory does
 * not grow with the file. The counts of the last row are in the file's metadata.
 */
export async function* parquetChunks<Last>(
  rows: AsyncGenerator<Row, Last, void>,
  kind: 'interactions' | 'merged',
): AsyncGenerator<Uint8Array, Last, void> {
  const file = new RowFile(kind === 'merged' ? mergedColumns : interactionColumns)
  let next = await rows.next()
  for (; !next.done; next = await rows.next()) {
    const row = next.value
    if (row.kind === 'end') yield file.end(row)
    else if (file.add(row)) yield file.take()
  }
  return next.value
}

/** A row group is written when its rows hold this much. Readers, too, hold one at a time. */
const rowGroupBytes = 16 * 2 ** 20

type RowGroup = ParquetWriter['row_groups'][number]
type HeldRow = Readonly<Record<string, unknown>>

class RowFile {
  readonly #columns: RowColumns
  readonly #bytes = new ByteWriter()
  readonly #writer: ParquetWriter
  #rows: HeldRow[] = []
  #heldBytes = 0

  constructor(columns: RowColumns) {
    this.#columns = columns
    this.#writer = new ParquetWriter({
      writer: this.#bytes,
      schema: structElements('schema', { ...columns.fields, ...columns.numbers }),
      codec: 'ZSTD',
      compressors: { ZSTD: zstdCompressSync },
      createdBy: 'millrace',
    })
  }

  /** Whether there are bytes to take. */
  add(row: Exclude<Row, EndRow>): boolean {
    this.#rows.push({ ...row })
    this.#heldBytes += sizeOf(row)
    if (this.#heldBytes < rowGroupBytes) return false
    this.#writeGroup()
    return true
  }

  take(): Uint8Array {
    const taken = this.#bytes.getBytes().slice()
    // Empties the buffer; offsets in the file go on counting.
    this.#bytes.index = 0
    return taken
  }

  end(row: EndRow): Uint8Array {
    if (this.#rows.length > 0) this.#writeGroup()
    this.#writer.kvMetadata = [{ key: 'millrace.end', value: JSON.stringify(row) }]
    void this.#writer.finish()
    return this.take()
  }

  #writeGroup(): void {
    const rows = this.#rows
    this.#rows = []
    this.#heldBytes = 0
    const columnData = Object.entries(this.#columns.fields).map(([name, type]) => ({
      name,
      data: rows.map((row) => valueIn(row, name, type)),
      offsetIndex: false,
    }))
    const start = this.#bytes.offset
    void this.#writer.write({ columnData, rowGroupSize: rows.length })
    const group = this.#writer.row_groups.at(-1)
    if (!group) return
    for (const [name, column] of Object.entries(this.#columns.numbers)) {
      const lists = rows.map((row) => (row[name] ?? null) as NumberArray | null)
      writeNumbers({ name, ...column, lists }, this.#bytes, group)
    }
    group.total_compressed_size = BigInt(this.#bytes.offset - start)
  }
}

interface NumberLists extends NumbersColumn {
  readonly name: string
  readonly lists: readonly (NumberArray | null)[]
}

/**
 * Adds a column of lists of numbers to a row group, as one page, straight from their memory. The library would visit every
 * number several times, in ordinary arrays: all columns together took nine times as long.
 */
function writeNumbers({ name, physical, lists }: NumberLists, writer: ByteWriter, group: RowGroup): void {
  const repetitions = new Levels()
  const definitions = new Levels()
  const length = lists.reduce((sum, list) => sum + (list?.length ?? 0), 0)
  const values = physical === 'FLOAT' ? new Float32Array(length) : new Int32Array(length)
  let end = 0
  for (const list of lists) {
    const count = list?.length ?? 0
    repetitions.add(0, 1)
    repetitions.add(1, count - 1)
    // The list is null, is empty, or has numbers.
    definitions.add(list === null ? 0 : Math.min(count + 1, 2), Math.max(count, 1))
    if (list) values.set(list, end)
    end += count
  }
  const start = writer.offset
  const levels = [repetitions.bytes(), definitions.bytes()] as const
  const levelBytes = levels[0].length + levels[1].length
  const page = zstdCompressSync(bytesOf(values))
  writePageHeader(writer, {
    type: 'DATA_PAGE_V2',
    uncompressed_page_size: levelBytes + values.byteLength,
    compressed_page_size: levelBytes + page.length,
    data_page_header_v2: {
      num_values: definitions.count,
      num_nulls: definitions.count - length,
      num_rows: lists.length,
      encoding: 'PLAIN',
      repetition_levels_byte_length: levels[0].length,
      definition_levels_byte_length: levels[1].length,
      is_compressed: true,
    },
  })
  const uncompressed = BigInt(writer.offset - start + levelBytes + values.byteLength)
  for (const bytes of [...levels, page]) writer.appendBytes(bytes)
  group.total_byte_size += uncompressed
  group.columns.push({
    file_offset: BigInt(start),
    meta_data: {
      type: physical,
      encodings: ['PLAIN', 'RLE'],
      path_in_schema: [name, 'list', 'element'],
      codec: 'ZSTD',
      num_values: BigInt(definitions.count),
      total_uncompressed_size: uncompressed,
      total_compressed_size: BigInt(writer.offset - start),
      data_page_offset: BigInt(start),
    },
  })
}

/** Levels of a page in Parquet's run-length encoding: twice the length of a run, then its level in one byte. */
class Levels {
  readonly #runs = new ByteWriter()
  #level = 0
  #run = 0
  count = 0

  add(level: number, count: number): void {
    if (count <= 0) return
    if (level !== this.#level) this.bytes()
    this.#level = level
    this.#run += count
    this.count += count
  }

  bytes(): Uint8Array {
    if (this.#run > 0) {
      this.#runs.appendVarInt(this.#run * 2)
      this.#runs.appendUint8(this.#level)
      this.#run = 0
    }
    return this.#runs.getBytes()
  }
}

/** About how much memory a value needs. */
function sizeOf(value: unknown): number {
  if (typeof value === 'string') return 16 + value.length
  if (ArrayBuffer.isView(value)) return value.byteLength
  if (typeof value !== 'object' || value === null) return 8
  let size = 64
  for (const part of Object.values(value)) size += 16 + sizeOf(part)
  return size
}
