import { messageJson } from '../inference/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { RecordForm } from './codec-messages.ts'
import type { CodecPool } from './codec-pool.ts'
import type { SettledRollout } from './result-reader.ts'

/** A longer reply is written elsewhere. Its messages were written once already, for the journal: this much is copied. */
const maxInlineCharacters = 128 * 1024

/** A settled rollout as JSON: text if it is small and at hand, else chunks that another thread makes of what is stored. */
export function replyText(
  { id, record }: SettledRollout,
  form: RecordForm,
  codec: CodecPool,
): string | AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
  const text = record && form === 'record' ? smallText(record) : undefined
  return text ?? codec.encode(id, form)
}

function smallText({ messages, ...head }: RolloutRecord): string | undefined {
  const texts = messages.map(messageJson)
  let characters = 0
  for (const text of texts) characters += text.length
  if (characters > maxInlineCharacters) return undefined
  return `${JSON.stringify(head).slice(0, -1)},"messages":[${texts.join(',')}]}`
}
