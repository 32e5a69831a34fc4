/** Version 1: the text as UTF-8 in base64url. A later encoding gets another number, and this one can still be read. */
const prefix = 'millrace-1.'

/**
 * The value of `encrypted_content`. It hides nothing, because the summary beside it has the same text: it is for clients
 * that send back only this field of a reasoning item.
 */
export function encodeReasoning(text: string): string {
  return prefix + Buffer.from(text).toString('base64url')
}

/** The reasoning; undefined if another server wrote the value. */
export function decodeReasoning(encoded: string): string | undefined {
  if (!encoded.startsWith(prefix)) return undefined
  return Buffer.from(encoded.slice(prefix.length), 'base64url').toString()
}
