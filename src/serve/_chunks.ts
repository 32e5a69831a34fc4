const targetBytes = 256 * 1024

/** Pieces of text as bytes, in chunks of about 256 KiB that each own their buffer, so that they can change threads. */
export function* chunksOf(pieces: Iterable<string>): Generator<Uint8Array<ArrayBuffer>, void, void> {
  const encoder = new TextEncoder()
  let waiting: string[] = []
  let characters = 0
  for (const piece of pieces) {
    waiting.push(piece)
    characters += piece.length
    if (characters < targetBytes) continue
    yield* sized(encoder.encode(waiting.join('')))
    waiting = []
    characters = 0
  }
  if (characters > 0) yield* sized(encoder.encode(waiting.join('')))
}

/** One long message makes one long piece: writing it to a socket at once would hold up the loop that does. */
function* sized(bytes: Uint8Array<ArrayBuffer>): Generator<Uint8Array<ArrayBuffer>, void, void> {
  if (bytes.length <= 2 * targetBytes) {
    yield bytes
    return
  }
  for (let start = 0; start < bytes.length; start += targetBytes) yield bytes.slice(start, start + targetBytes)
}
