import { zstdDecompressSync } from 'node:zlib'
import { parquetMetadata, parquetReadObjects } from 'hyparquet'

/** One row of an export, arrays and all. */
export type ReadRow = Readonly<Record<string, unknown>> & { readonly kind: string }

const arrayTypes = { int32: Int32Array, float32: Float32Array, uint8: Uint8Array, int16: Int16Array } as const

interface ArrayEntry {
  readonly name: string
  readonly type: keyof typeof arrayTypes
  readonly shape: readonly number[]
  readonly offset: number
}

/** Reads the binary form as docs/export.md describes it. */
export function readBinaryRows(file: Uint8Array): ReadRow[] {
  const bytes = Buffer.from(file)
  const rows: ReadRow[] = []
  let at = 0
  while (at < bytes.length) {
    if (bytes.toString('latin1', at, at + 8) === 'MILLROWS') {
      if (bytes.readUInt32LE(at + 8) !== 1) throw new Error(`version ${bytes.readUInt32LE(at + 8)}`)
      at += 16
      continue
    }
    const headerBytes = bytes.readUInt32LE(at)
    const arrayBytes = bytes.readUInt32LE(at + 4)
    const start = at + 8 + headerBytes
    if (start + arrayBytes > bytes.length) throw new Error('cut off')
    if (headerBytes % 8 !== 0 || arrayBytes % 8 !== 0) throw new Error('not aligned')
    const { arrays, ...fields } = JSON.parse(bytes.toString('utf8', at + 8, start)) as ReadRow & {
      arrays: readonly ArrayEntry[]
    }
    const values = arrays.map(({ name, type, shape, offset }) => {
      const Type = arrayTypes[type]
      const count = shape.reduce((product, size) => product * size, 1)
      const own = Uint8Array.from(bytes.subarray(start + offset, start + offset + count * Type.BYTES_PER_ELEMENT))
      return [name, new Type(own.buffer)]
    })
    rows.push({ ...fields, ...(Object.fromEntries(values) as Record<string, unknown>) })
    at = start + arrayBytes
  }
  return rows
}

/** Reads JSON lines as docs/export.md describes them. */
export function readJsonRows(file: Uint8Array): ReadRow[] {
  const text = Buffer.from(file).toString('utf8')
  if (!text.endsWith('\n')) throw new Error('cut off')
  return text
    .slice(0, -1)
    .split('\n')
    .map((line) => withFloats(JSON.parse(line) as ReadRow))
}

/** Log-probabilities are 32-bit floats, of which the text has the first nine digits. */
function withFloats(row: ReadRow): ReadRow {
  const { logprobs } = row as { readonly logprobs?: readonly (number | null)[] | null }
  return logprobs ? { ...row, logprobs: logprobs.map((value) => value && Math.fround(value)) } : row
}

const jsonColumns = new Set(['rewards', 'sampling', 'usage', 'more'])
const columnArrays = { promptIds: Int32Array, ids: Int32Array, mask: Uint8Array, logprobs: Float32Array } as const

/** Reads a Parquet file of rows with another library, each column back into what the other forms have. */
export async function readParquetRows(bytes: Uint8Array): Promise<{ rows: ReadRow[]; end: unknown; groups: number }> {
  const file = Uint8Array.from(bytes).buffer
  const { key_value_metadata, row_groups } = parquetMetadata(file)
  const end = key_value_metadata?.find(({ key }) => key === 'millrace.end')?.value
  const compressors = { ZSTD: (input: Uint8Array) => zstdDecompressSync(input) }
  const rows = (await parquetReadObjects({ file, compressors, utf8: false })) as ReadRow[]
  return {
    rows: rows.map((row) => fromColumn(row) as ReadRow),
    end: end === undefined ? undefined : JSON.parse(end),
    groups: row_groups.length,
  }
}

function fromColumn(value: unknown, name = ''): unknown {
  if (value === null || value === undefined) return null
  if (typeof value === 'string' && jsonColumns.has(name)) return JSON.parse(value)
  if (value instanceof Date) return value.getTime()
  if (name in columnArrays) return columnArrays[name as keyof typeof columnArrays].from(value as Iterable<number>)
  if (Array.isArray(value)) return value.map((each) => fromColumn(each))
  if (name === 'routedExperts') {
    const { dtype, data } = value as { dtype: string; data: Uint8Array }
    return new arrayTypes[dtype as keyof typeof arrayTypes](Uint8Array.from(data).buffer)
  }
  if (typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([field, part]) => [field, fromColumn(part, field)]))
}
