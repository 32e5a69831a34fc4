import { createWriteStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { pipeline } from 'node:stream/promises'
import { MillraceError } from '../../errors/index.ts'
import { peeked } from '../../kit/index.ts'

/**
 * Writes a file piece by piece, over what it held, as `-o` of other programs does: an export can be made again, and mostly is.
 * Resolves to whether it held anything. `flag` is what names another one.
 */
export async function writeOutputFile(
  chunks: AsyncIterable<string | Uint8Array>,
  file: string,
  flag: string,
): Promise<boolean> {
  try {
    // Whoever refuses to give anything leaves the file alone.
    await using checked = await peeked(chunks)
    const before = await stat(file).catch(() => undefined)
    await pipeline(checked, createWriteStream(file))
    return before?.isFile() === true && before.size > 0
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // What went wrong while reading is for whoever reads.
    if (error instanceof MillraceError || code === 'ERR_SQLITE_ERROR') throw error
    if (code === 'ENOSPC')
      throw new MillraceError('disk_full', `no room left to write ${file}; free some`, { cause: error })
    throw new MillraceError(
      'folder_unwritable',
      `cannot write ${file} (${code ?? String(error)}); choose another with ${flag}`,
      { cause: error },
    )
  }
}
