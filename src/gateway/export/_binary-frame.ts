import { bytesOf, dtypeOf } from '../../kit/index.ts'
import { partsOf, type Row } from './_rows-parts.ts'

/** The first bytes of a file of rows; docs/export.md describes every byte. The head may come again between two frames. */
export const binaryHead: Uint8Array = Uint8Array.from([...Buffer.from('MILLROWS'), 1, 0, 0, 0, 0, 0, 0, 0])

const alignment = 8
const lengthsBytes = 8

/**
 * One row: the lengths of its header and of its arrays, the header (JSON, with a list of the arrays), the arrays as they lie
 * in memory. Header and arrays each begin at a multiple of eight bytes, so that they can be used where they are.
 *
 *     u32 header bytes | u32 array bytes | header, padded | array, padded | array, padded | …
 */
export function binaryFrame(row: Row): Uint8Array {
  const { fields, arrays } = partsOf(row)
  let arrayBytes = 0
  const list = arrays.map(({ name, values, shape }) => {
    const described = { name, type: dtypeOf(values), shape, offset: arrayBytes }
    arrayBytes += aligned(values.byteLength)
    return described
  })
  // The header is padded with spaces, which JSON ignores, so its unpadded length is not needed.
  const json = Buffer.from(JSON.stringify({ ...fields, arrays: list }))
  const headerBytes = aligned(json.byteLength)
  const frame = Buffer.alloc(lengthsBytes + headerBytes + arrayBytes)
  frame.writeUInt32LE(headerBytes, 0)
  frame.writeUInt32LE(arrayBytes, 4)
  json.copy(frame, lengthsBytes)
  frame.fill(' ', lengthsBytes + json.byteLength, lengthsBytes + headerBytes)
  let offset = lengthsBytes + headerBytes
  for (const { values } of arrays) {
    frame.set(bytesOf(values), offset)
    offset += aligned(values.byteLength)
  }
  return frame
}

function aligned(bytes: number): number {
  return Math.ceil(bytes / alignment) * alignment
}
