import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryRuns } from '../../../testing/index.ts'
import { fakeProcess } from '../../../../test/support/cli/fake-terminal.ts'
import { main } from '../../main.ts'

async function init(cwd: string, ...args: string[]) {
  const parts = fakeProcess()
  const code = await main(['init', ...args], { ...parts, cwd })
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

describe('millrace init', () => {
  it('writes an environment and names the command to run it', async () => {
    await using folder = await temporaryRuns()
    const { code, stdout } = await init(folder.root, 'my-environment')
    expect(code).toBe(0)
    expect(stdout).toContain('wrote my-environment/environment.ts')
    expect(stdout).toContain('next: npx millrace eval ./my-environment/environment.ts -m sim')
    const text = readFileSync(join(folder.root, 'my-environment', 'environment.ts'), 'utf8')
    expect(text).toContain(`name: 'my-environment'`)
    expect(text.split('\n').length).toBeLessThan(40)
    for (const file of ['README.md', 'environment.test.ts']) {
      expect(existsSync(join(folder.root, 'my-environment', file))).toBe(true)
    }
    expect(readFileSync(join(folder.root, 'my-environment', '.gitignore'), 'utf8')).toBe('runs/\n')
    expect(JSON.parse(readFileSync(join(folder.root, 'my-environment', 'package.json'), 'utf8'))).toMatchObject({
      type: 'module',
    })
  })

  it('does not change the package.json and .gitignore of a folder', async () => {
    await using folder = await temporaryRuns()
    writeFileSync(join(folder.root, 'package.json'), '{}')
    writeFileSync(join(folder.root, '.gitignore'), 'mine')
    expect((await init(folder.root)).code).toBe(0)
    expect(readFileSync(join(folder.root, 'package.json'), 'utf8')).toBe('{}')
    expect(readFileSync(join(folder.root, '.gitignore'), 'utf8')).toBe('mine')
  })

  it('reports why a folder cannot be written', async () => {
    await using folder = await temporaryRuns()
    writeFileSync(join(folder.root, 'file'), '')
    const { code, stderr } = await init(folder.root, 'file/below')
    expect(code).toBe(1)
    expect(stderr).toMatch(
      /error: cannot write to .*below \(ENOTDIR: .*\); choose another folder \[folder_unwritable\]/,
    )
  })

  it.runIf(existsSync('/proc/self'))('is refused by a folder that takes no others', async () => {
    const { code, stderr } = await init('/proc', 'below')
    expect(code).toBe(1)
    expect(stderr).toContain('cannot write to /proc/below (ENOENT')
  })

  it('writes nothing if it would overwrite a file', async () => {
    await using folder = await temporaryRuns()
    writeFileSync(join(folder.root, 'README.md'), 'mine')
    const { code, stderr } = await init(folder.root)
    expect(code).toBe(1)
    expect(stderr).toContain('README.md is there already; choose another folder: npx millrace init <folder>')
    expect(readFileSync(join(folder.root, 'README.md'), 'utf8')).toBe('mine')
    expect(existsSync(join(folder.root, 'environment.ts'))).toBe(false)
  })
})
