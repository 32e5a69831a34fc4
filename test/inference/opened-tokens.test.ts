import { cp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { openModel } from '../../src/cli/commands/doctor/model-report.ts'
import { type ImitationName, SimulatorServer } from '../../src/simulator/index.ts'
import { ScriptedServer } from '../support/inference/scripted-server.ts'

const assets = join(import.meta.dirname, '../../assets/simulator')

async function changedFolder(root: string, file: string, change: (text: string) => string): Promise<string> {
  const folder = join(root, 'model')
  await cp(assets, folder, { recursive: true })
  await writeFile(join(folder, file), change(await readFile(join(folder, file), 'utf8')))
  return folder
}

const start = (imitate: ImitationName): Promise<SimulatorServer> => SimulatorServer.start({ imitate, tokens: 'lossy' })

test.each(['vllm', 'sglang'] as const)(
  'the tokenizer and the chat template are compared with those of %s',
  async (imitate) => {
    await using simulator = await start(imitate)
    const { backends } = await openModel({ name: 'sim', backends: [{ url: simulator.url }] }, {}, {})
    expect(backends).toEqual([expect.objectContaining({ isTokenizerCompared: true, isTemplateCompared: true })])
  },
)

test.each([
  ['chat_template.jinja', 'chat template', (text: string) => text.replace('# Tools', '# Functions')],
  [
    'tokenizer.json',
    'tokenizer',
    (text: string) => {
      const tokenizer = JSON.parse(text) as { normalizer: unknown }
      return JSON.stringify({ ...tokenizer, normalizer: { type: 'NFKC' } })
    },
  ],
])('a folder with another %s than the server’s is refused', async (file, what, change) => {
  await using runs = await temporaryRuns()
  await using simulator = await start('vllm')
  const tokenizer = await changedFolder(runs.root, file, change)
  await expect(openModel({ name: 'sim', backends: [{ url: simulator.url }], tokenizer }, {}, {})).rejects.toMatchObject(
    {
      code: 'config_invalid',
      message: expect.stringContaining(`the ${what} in ${tokenizer} is not that of`) as string,
    },
  )
})

test('a chat template that writes the date is not compared, because the engine may be where it is another day', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await start('vllm')
  const dated = (text: string): string => text.replace("'# Tools", "strftime_now('%d %b') + '# Tools")
  const tokenizer = await changedFolder(runs.root, 'chat_template.jinja', dated)
  const { backends } = await openModel({ name: 'sim', backends: [{ url: simulator.url }], tokenizer }, {}, {})
  expect(backends).toEqual([expect.objectContaining({ isTokenizerCompared: true, isTemplateCompared: false })])
})

test('a server that takes ids, but has neither the older paths of SGLang nor /tokenize, is used without a comparison', async () => {
  const logprobs = [[-1, 5, null]]
  await using server = await ScriptedServer.start((response, { path }) => {
    const answers: Readonly<Record<string, object>> = {
      '/v1/models': { data: [{ id: 'sim' }] },
      '/model_info': { model_path: assets, tokenizer_path: assets },
      '/server_info': { context_length: 4096 },
      '/generate': {
        text: '',
        output_ids: [5],
        meta_info: { finish_reason: { type: 'length' }, completion_tokens: 1, output_token_logprobs: logprobs },
      },
    }
    const answer = answers[path]
    response.writeHead(answer ? 200 : 404, { 'content-type': 'application/json' })
    response.end(JSON.stringify(answer ?? { detail: 'Not Found' }))
  })
  const opened = await openModel({ name: 'sim', backends: [{ url: server.url }] }, {}, {})
  expect(opened).toMatchObject({
    folder: assets,
    contextLength: 4096,
    backends: [{ path: '/generate', isTokenizerCompared: false, isTemplateCompared: false }],
  })
})
