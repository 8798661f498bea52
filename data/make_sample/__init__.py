"""Your own programs: conversion to competition files, the zoo of JAX programs, the sample competition."""
