import { cp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { chatMl, llama } from '../../../../test/support/tokens/chat-templates.ts'
import { simulatorFolder } from '../../../../test/support/tokens/simulator-folder.ts'
import { temporaryFolder } from '../../../../test/support/tools/temporary-folder.ts'
import { SimulatorServer } from '../../../simulator/index.ts'
import { createStyle } from '../../terminal/text.ts'
import { openModel, reportJson, reportLines } from './model-report.ts'

const screen = { width: 80, style: createStyle(false) }

describe('the report of a model', () => {
  test('says what is exact, and what the template does', async () => {
    await using simulator = await SimulatorServer.start({ tokens: 'lossy', contextLength: 9000 })
    const model = { name: 'm', backends: [{ url: simulator.url }] }
    const stream = await openModel(model, {}, {})
    const lines = reportLines(stream, screen)
    expect(lines[0]).toBe(`✓ tokenizer       ${simulatorFolder}`)
    expect(lines[1]).toMatch(/^✓ backend         127\.0\.0\.1:\d+ takes ids at \/inference\/v1\/generate$/)
    expect(lines.slice(2).filter((line) => line.startsWith('✓'))).toEqual([
      '✓ context         9000 tokens',
      '✓ end of a reply  "<|im_end|>\\n"',
      '✓ next turn       a user message: exact',
      '✓ next turn       a tool result: exact',
      '✓ next turn       results of parallel calls: exact',
      '✓ next turn       a tool result and a user message: exact',
      '✓ next turn       a system message: exact',
      '✓ tool calls      in the format hermes',
    ])
    const warned = lines.filter((line) => line.startsWith('!')).map((line) => line.slice(2, 18).trim())
    expect(warned).toEqual(['reasoning', 'arguments'])
    expect(lines.filter((line) => line.startsWith('  ')).every((line) => line.length <= 80)).toBe(true)
    expect(JSON.parse(reportJson(stream))).toMatchObject({
      exactTokens: true,
      folder: simulatorFolder,
      contextLength: 9000,
      template: { toolFormat: 'hermes', respellsArguments: true, turns: expect.any(Array) as unknown },
    })
  })

  test('of the simulator in this process', async () => {
    const stream = await openModel({ name: 'm', simulator: { tokens: 'lossy' } }, {}, {})
    expect(reportLines(stream, screen)[1]).toBe('✓ backend         simulator takes ids in process')
    await expect(openModel('sim', {}, {})).rejects.toThrow(/takes no prompts of token ids.*with tokens: lossy/)
  })

  test('refuses a template that is not that of the server', async () => {
    await using folder = await temporaryFolder()
    await cp(simulatorFolder, folder.path, { recursive: true })
    const source = llama.replaceAll('<|eot_id|>', '<|im_end|>')
    await writeFile(join(folder.path, 'chat_template.jinja'), source)
    await using simulator = await SimulatorServer.start({ tokens: 'lossy', imitate: 'millrace' })
    const model = { name: 'm', backends: [{ url: simulator.url }], tokenizer: folder.path }
    await expect(openModel(model, {}, {})).rejects.toThrow(/the chat template in .* is not that of 127\.0\.0\.1/)
  })

  test('fails with the reason for a server that takes no ids, and for a template that cannot be continued', async () => {
    await using simulator = await SimulatorServer.start({ imitate: 'openai' })
    const model = { name: 'm', backends: [{ url: simulator.url }] }
    await expect(openModel(model, {}, {})).rejects.toThrow(/takes no prompts of token ids, so tokens cannot be exact/)
    await using folder = await temporaryFolder()
    await cp(simulatorFolder, folder.path, { recursive: true })
    await writeFile(join(folder.path, 'chat_template.jinja'), chatMl.replaceAll('<|im_end|>', 'END'))
    const other = { name: 'm', simulator: { tokens: 'lossy' as const }, tokenizer: folder.path }
    await expect(openModel(other, {}, {})).rejects.toThrow(/ends replies with "END\\n"/)
  })
})
