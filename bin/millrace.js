#!/usr/bin/env node
// Plain JavaScript that older versions of Node can parse, so that they can say what is needed.
import { existsSync } from 'node:fs'
import module from 'node:module'
import { setFlagsFromString } from 'node:v8'

if (Number.parseInt(process.versions.node, 10) < 24) {
  const hint =
    'Run it with npx or npm run in a project that has node@24 (npm install --save-dev node@24), or install Node 24. ' +
    'A program that starts it and sends it signals runs node_modules/.bin/node node_modules/.bin/millrace instead: npx does not pass them on.'
  console.error(`millrace needs Node 24 or newer (this is v${process.versions.node}). ${hint}`)
  process.exitCode = 1
} else {
  // Some parts of Node that we rely on still announce themselves as experimental; every other warning is shown.
  const emitWarning = process.emitWarning
  process.emitWarning = (warning, ...rest) => {
    const type = typeof rest[0] === 'object' ? rest[0]?.type : rest[0]
    const code = typeof rest[0] === 'object' ? rest[0]?.code : rest[1]
    // An environment is a module whatever its folder's package.json says or does not say.
    if (code === 'MODULE_TYPELESS_PACKAGE_JSON') return
    if (type === 'ExperimentalWarning' && /sqlite|type stripping|stripTypeScriptTypes/i.test(String(warning))) return
    emitWarning.call(process, warning, ...rest)
  }
  // Where threads come and go, V8 13.6 now and then crashes as it frees code of the HTTP parser, which is WebAssembly
  // (WasmEngine::FreeDeadCode, a null mutex). There are a few hundred kilobytes of it, so it may stay.
  setFlagsFromString('--no-wasm-code-gc')
  // Compiled code is kept from one command to the next, in the folder for temporary files: it halves the time to start.
  module.enableCompileCache()
  const source = new URL('../src/cli/main.ts', import.meta.url)
  const entry = existsSync(source) ? source : new URL('../dist/cli/main.js', import.meta.url)
  const { main } = await import(entry.href)
  process.exitCode = await main(process.argv.slice(2))
  // A timer or a socket that an environment has left open keeps no command from ending.
  setTimeout(() => process.exit(), 1_000).unref()
}
