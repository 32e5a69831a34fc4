/** The entry of a thread that encodes long texts with the tokenizer of one model. */
import { workerData } from 'node:worker_threads'
import { serveJobs } from '../../kit/index.ts'
import { loadTokenizer } from '../../tokenizer/index.ts'

await serveJobs<string, Int32Array<ArrayBuffer>>({ start, errorCode: 'internal' })

async function start() {
  const { tokenizer } = await loadTokenizer(String(workerData))
  return (text: string) => {
    const ids = tokenizer.encode(text)
    return { value: ids, transfer: [ids.buffer] }
  }
}
