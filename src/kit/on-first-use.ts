import { createRequire } from 'node:module'
import type * as Ajv from 'ajv'
import type * as Ajv2020 from 'ajv/dist/2020.js'
import type * as Fastify from 'fastify'
import type * as Pino from 'pino'
import type * as Undici from 'undici'

const load = createRequire(import.meta.url)

interface Packages {
  readonly ajv: typeof Ajv
  readonly 'ajv/dist/2020.js': typeof Ajv2020
  readonly fastify: typeof Fastify
  readonly pino: typeof Pino
  readonly undici: typeof Undici
}

/**
 * A package that is loaded when it is first used, not with the file that names it. For those that take long to load and that
 * most commands and workers never use: each worker, and each thread that loads an environment, loads all of the library.
 */
export function onFirstUse<Name extends keyof Packages>(name: Name): () => Packages[Name] {
  let loaded: Packages[Name] | undefined
  return () => (loaded ??= load(name) as Packages[Name])
}
