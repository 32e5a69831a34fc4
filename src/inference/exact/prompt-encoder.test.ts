import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { simulatorFolder } from '../../../test/support/tokens/simulator-folder.ts'
import type { JsonObject } from '../../schema/index.ts'
import { Tokenizer } from '../../tokenizer/index.ts'
import { PromptEncoder } from './prompt-encoder.ts'

const file = JSON.parse(await readFile(join(simulatorFolder, 'tokenizer.json'), 'utf8')) as JsonObject

class CountingTokenizer extends Tokenizer {
  characters = 0

  override encode(text: string): Int32Array<ArrayBuffer> {
    this.characters += text.length
    return super.encode(text)
  }
}

test('of a conversation of many short messages, only the beginning is encoded on the loop', async () => {
  const tokenizer = new CountingTokenizer(file, {})
  await using encoder = new PromptEncoder({ folder: simulatorFolder, tokenizer })
  const message = (index: number) => `<|im_start|>user\n${`Word ${index}. `.repeat(100)}<|im_end|>\n`
  const text = Array.from({ length: 100 }, (_, index) => message(index)).join('')
  const ids = (await encoder.encode(text)).flatMap((part) => Array.from(part))
  expect(tokenizer.characters).toBeLessThan(20_000)
  expect(ids).toEqual(Array.from(tokenizer.encode(text)))
})
