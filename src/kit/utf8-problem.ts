import { isUtf8 } from 'node:buffer'
import { commonLength } from './common-length.ts'

/**
 * What is wrong with a body that is not UTF-8. Decoding would replace such bytes in silence, and a model would be asked something
 * else. Undefined for a body that is.
 */
export function utf8Problem(bytes: Uint8Array): string | undefined {
  if (isUtf8(bytes)) return undefined
  // Decoded and encoded again, the bytes differ first where one was replaced.
  const decoded = Buffer.from(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'))
  return `the body is not UTF-8 (byte ${commonLength(bytes, decoded)} begins no character); send it in this encoding`
}
